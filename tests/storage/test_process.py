"""What a forked child has of its parent's process."""

from __future__ import annotations

import os
import threading

from sparklog.storage.process import ProcessState


def test_forked_child_begins_with_empty_tables_and_a_lock_of_its_own() -> None:
    first, second, given_up = {"a": 1}, {"b": 2}, list[int]()
    state = ProcessState(threading.Lock, first, second, give_up=given_up.append)
    with state.lock:
        process = os.fork()
        if not process:
            is_new = not first and not second and given_up == [1, 2] and state.lock.acquire(blocking=False)
            os._exit(0 if is_new else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert (first, second, given_up) == ({"a": 1}, {"b": 2}, [])
    assert state.lock.acquire(blocking=False)

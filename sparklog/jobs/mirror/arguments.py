"""`sparklog.mirror`: checks the arguments, and follows a log directory once or until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Unpack

from sparklog.errors import InvalidOptionError, outcome
from sparklog.jobs.mirror.job import Follower, MirrorSummary
from sparklog.jobs.mirror.state import claim_target, places_of
from sparklog.jobs.run.local import runner_of
from sparklog.jobs.run.options import LogJobArguments, LogJobOptions, with_options
from sparklog.log import files
from sparklog.log.properties import taken
from sparklog.storage.registry import PathText
from sparklog.write.locking import hold
from sparklog.write.small_files import make_directory

_MARK: Final = (files.MIRROR, "mirror")
_NOTHING_DONE: Final = "Nothing was copied"


@with_options(LogJobOptions)
def mirror(
    source: PathText,
    target: PathText,
    *,
    follow: bool = False,
    interval_seconds: float = 1.0,
    each_pass: Callable[[MirrorSummary], object] | None = None,
    **shared: Unpack[LogJobArguments],
) -> MirrorSummary:
    """Make a log directory an exact copy of another one, which a broker may be writing to, and follow it.

    Each log of the mirror always has the bytes of its source up to some offset. Only whole batches with right checksums
    are copied. A run that was killed at any point is continued by the next one. The source is not changed.

    Parameters
    ----------
    source : str or os.PathLike
        A log directory.
    target : str or os.PathLike
        The mirror: a folder that is empty or missing, or the mirror of the same source. It is locked meanwhile.
    follow : bool
        Whether to continue until Ctrl-C, or until ``each_pass`` returns False. Damage in a log is then in the errors of
        the summary, and the others are followed.
    interval_seconds : float
        The time between the passes.
    each_pass : callable, optional
        Receives the summary of each pass.

    Returns
    -------
    MirrorSummary
        The outcome of the last pass.

    Raises
    ------
    PathNotFoundError, InvalidOptionError
        The arguments are wrong, or the target is no mirror of this source; nothing was changed.
    LockedError
        A broker runs on the target, or another writer works there.
    CorruptLogError, UnreadableLogError
        The error of the first log that cannot be copied, with further errors in ``others``; all others were copied.
    """
    if not interval_seconds >= 0:
        raise InvalidOptionError(f"interval_seconds is {interval_seconds}, and must be at least 0")
    options = taken(LogJobOptions, shared)
    runner, (theirs, ours) = runner_of(options.processes, options.spark), places_of(source, target, *_MARK)
    follower = Follower(theirs, ours, runner, options)
    if options.dry_run:
        return follower.look()[1]
    with outcome(_NOTHING_DONE):
        make_directory(ours)
    with hold(ours, options.lock_timeout_seconds):
        claim_target(theirs, ours, *_MARK)
        if follow:
            return follower.follow(interval_seconds, each_pass or (lambda _: None))
        summary = follower.run_until_still()
    if each_pass is not None:
        each_pass(summary)
    if summary.errors:
        first, *others = summary.errors
        first.others = tuple(others)
        raise first
    return summary

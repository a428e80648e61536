"""Tells what stands in a folder under a name that is neither a regular file nor a folder.

Opening a pipe waits for its other end, and a symbolic link may lead nowhere or in a circle: who looks at a folder of
unknown content must know of such names before it opens them.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from sparklog.storage.local import explained

_KINDS: Final = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_LEADS_NOWHERE: Final = "a symbolic link that leads nowhere"
_LEADS_IN_A_CIRCLE: Final = "a symbolic link that leads in a circle"


def special_kind(path: str) -> str | None:
    """Say what is at a path, such as "a FIFO"; None for a regular file, a folder, or nothing."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return _LEADS_NOWHERE if Path(path).is_symlink() else None
    except OSError as error:
        return _LEADS_IN_A_CIRCLE if error.errno == errno.ELOOP else None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), None)


def special_names(folder: str) -> dict[str, str]:
    """List the names in a folder that are neither regular files nor folders, and what each of them is.

    Raises
    ------
    PathNotFoundError or StorageError
        The folder cannot be listed.
    """
    try:
        with os.scandir(folder) as found:
            suspects = sorted(item.name for item in found if not item.is_file(follow_symlinks=False))
    except OSError as error:
        raise explained(error, folder) from error
    kinds = ((name, special_kind(f"{folder}/{name}")) for name in suspects)
    return {name: kind for name, kind in kinds if kind is not None}

"""Makes the passes of a cleaning that callers ask for, besides those of the topics: erasure and conversion."""

from __future__ import annotations

from typing import Final

from sparklog.cleaner.conversion import ConversionPass
from sparklog.cleaner.erasure import ErasurePass
from sparklog.cleaner.partition import CleanPass
from sparklog.errors import InvalidOptionError
from sparklog.jobs.clean.keys import Keys, read_keys
from sparklog.log.filters.where_parser import parse_where
from sparklog.record.codecs.table import CODEC_IDS, refuse_codec
from sparklog.record.decode.where import Where
from sparklog.record.rewrite.changes import EMPTY, NULL

_BLANKS: Final = {"null": NULL, "empty": EMPTY}
_FORMATS: Final = (0, 1, 2)


def erasure_passes(erase: Keys | None, erase_where: str | Where | None, blank: str | None) -> tuple[CleanPass, ...]:
    """Return the pass that erases records, if arguments ask for one.

    Raises
    ------
    InvalidOptionError
        The arguments contradict each other, the filter is wrong, or there are no keys.
    """
    if blank is not None and blank not in _BLANKS:
        raise InvalidOptionError(f"blank is {blank!r}, and must be one of {', '.join(_BLANKS)}")
    if erase is None and erase_where is None:
        if blank is not None:
            raise InvalidOptionError("blank says how to erase: say what by erase or erase_where")
        return ()
    return (
        ErasurePass(
            keys=None if erase is None else read_keys(erase),
            where=None if erase_where is None else parse_where(erase_where),
            is_blanked=blank is not None,
            blank_bytes=NULL if blank is None else _BLANKS[blank],
        ),
    )


def conversion_passes(recompress: str | None, record_format: int | None, lossy: bool) -> tuple[CleanPass, ...]:
    """Return the pass that converts batches, if arguments ask for one.

    Raises
    ------
    InvalidOptionError
        The codec or format does not exist, or the format does not have the codec.
    """
    codec = "none" if recompress == "uncompressed" else recompress
    if codec is not None and codec not in CODEC_IDS:
        raise InvalidOptionError(f"recompress is {recompress!r}, and must be one of {', '.join(CODEC_IDS)}")
    if record_format is not None and record_format not in _FORMATS:
        raise InvalidOptionError(f"format is {record_format}, and must be one of 0, 1 and 2")
    if codec is not None and record_format is not None:
        refuse_codec(codec, record_format)
    if lossy and record_format not in (0, 1):
        raise InvalidOptionError("lossy allows the losses of formats 0 and 1: no other conversion has any")
    if codec is None and record_format is None:
        return ()
    return (ConversionPass(magic=record_format, codec=codec, is_lossy=lossy),)

"""Plans a copy of logs: which batches are copied to which log, and their offsets there.

Only the batches at the ends of ranges are read. What the target cannot accept is refused here, before anything is
staged, except for reasons that only the other batches show.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.inspect.describe import describe_directory
from sparklog.jobs.copy.whole_batches import base_offset_at, whole_batches
from sparklog.jobs.landing import lost_since
from sparklog.jobs.ledger import Landed, Moved, commits
from sparklog.jobs.source import DamageSpan, LogSource, Selected, piece_bytes_max
from sparklog.log import files
from sparklog.log.checkpoints import parse_leader_epochs, parse_topic_id
from sparklog.log.damage_rows import OnDamage
from sparklog.log.files import TopicPartition, checked_partition
from sparklog.log.layout import PartitionLayout, read_layout
from sparklog.log.log_identity import read_log_id
from sparklog.log.places import LogDirectory, PartitionFolder
from sparklog.log.transactions import last_stable_offset
from sparklog.topic.places.discovery import named
from sparklog.topic.places.ranges import ReadRange, cut_by_bytes
from sparklog.write.commit_plan import OffsetBounds
from sparklog.write.staged_files import Origin


@dataclass(frozen=True)
class CopySource:
    """Logs to copy, and their topics in the target.

    Attributes
    ----------
    renames : tuple of (str, str)
        Topics and their names in the target; other topics keep their names.
    """

    logs: LogSource
    renames: tuple[tuple[str, str], ...] = ()

    def target_of(self, at: TopicPartition) -> TopicPartition:
        """Return the partition that a partition of the source is copied to."""
        return TopicPartition(dict(self.renames).get(at.topic, at.topic), at.partition)


@dataclass(frozen=True)
class CopyPiece:
    """A range of offsets of one log, which one task copies.

    Attributes
    ----------
    target : str
        The name of the folder of the target log.
    base_offset : int
        The offset that the first batch is expected to get.
    bounds : OffsetBounds
        The start and end that the target log must get.
    moved : Moved
        The entry for the ledger, without the counts.
    damage : DamageSpan or None
        The damage that is recorded with the range; None if damage is not skipped.
    cut_offset : int or None
        The records from this offset on are left out of the last batch; None copies the batch whole.
    is_last : bool
        Whether it is the last piece of its log.
    """

    range: ReadRange
    target: str
    base_offset: int
    origin: Origin
    bounds: OffsetBounds
    moved: Moved
    damage: DamageSpan | None = None
    cut_offset: int | None = None
    is_last: bool = True

    @property
    def name(self) -> str:
        return str(self.range)

    @property
    def log_bytes(self) -> int:
        return self.moved.log_bytes


_Identity = tuple[TopicPartition, str, str | None]
"""A partition of a source, and the topic that it is copied to.

The source is identified by its topic id if it has one, otherwise by the id of its log, and otherwise by the path of its
log directory."""


def _identity(at: TopicPartition, known_by: str | None, target_topic: str | None) -> _Identity:
    return at, known_by or "", target_topic


@dataclass
class _Landing:
    """A target log, as it will be after the pieces that are planned so far.

    Attributes
    ----------
    is_empty : bool
        Whether the log has no records yet.
    leader_epoch : int
        The leader epoch that batches are expected to get.
    layout : PartitionLayout or None
        The layout of the log before the copy; None for a new log.
    """

    folder: PartitionFolder
    is_new: bool
    is_empty: bool = True
    end_offset: int = 0
    leader_epoch: int = 0
    bounds: OffsetBounds = field(default_factory=OffsetBounds)
    layout: PartitionLayout | None = None

    @property
    def has_open_transaction(self) -> bool:
        return self.layout is not None and last_stable_offset(self.layout) < self.layout.end_offset


class CopyPlan:
    """The pieces of a copy, source by source; the target is held.

    Parameters
    ----------
    directory : LogDirectory
        The target.
    keeps_offsets, keeps_producers, since_last, cuts_batches : bool
        See `sparklog.jobs.copy.job.CopyJob`.
    task_bytes, workers : int
        Limits for pieces: no larger than a task, and some for each worker.

    Attributes
    ----------
    pieces : list of CopyPiece
        The planned pieces, in the order of their commit.
    """

    def __init__(
        self,
        directory: LogDirectory,
        *,
        keeps_offsets: bool,
        keeps_producers: bool,
        since_last: bool,
        task_bytes: int,
        workers: int,
        cuts_batches: bool = False,
    ) -> None:
        self.pieces: list[CopyPiece] = []
        self._targets: set[str] = set()
        self._directory, self._keeps_offsets, self._keeps_producers = directory, keeps_offsets, keeps_producers
        self._task_bytes, self._workers, self._cuts_batches = task_bytes, workers, cuts_batches
        # A dry run does not create it.
        storage, path = directory.storage, directory.path
        there = storage.names(path) if storage.is_folder(path) else ()
        self._there = {entry.name: entry.is_folder for entry in there}
        self._landings: dict[str, _Landing] = {}
        self._seen: dict[_Identity, str] = {}
        self._topic_ids: dict[str, set[str | None]] = {}
        self._clusters: dict[LogDirectory, str | None] = {}
        self._moved = self._ledger() if since_last else {}

    def _ledger(self) -> dict[_Identity, tuple[Moved, tuple[Landed, ...]]]:
        """Return the last copied range of each partition of each source, and the target logs after its commit."""
        found: dict[_Identity, tuple[Moved, tuple[Landed, ...]]] = {}
        for commit in commits(self._directory.storage, self._directory.file(files.JOBS_LEDGER)):
            landed = {each.folder: each for each in commit.entries if isinstance(each, Landed)}
            for entry in commit.entries:
                if isinstance(entry, Moved):
                    known_by = entry.topic_id or entry.log_id or entry.source
                    at = landed.get(str(TopicPartition(entry.target_topic or entry.topic, entry.partition)))
                    identity = _identity(entry.topic_partition, known_by, entry.target_topic)
                    found[identity] = entry, () if at is None else (at,)
        return found

    def add(self, source: CopySource) -> None:
        """Plan the pieces of a source, after those that are planned already."""
        folders = source.logs.folders()
        moved: dict[TopicPartition, Moved] = {}
        for folder in folders:
            target_topic, topic_id = source.target_of(named(folder)).topic, _topic_id_of(folder)
            self._note_topic_id(folder, target_topic, topic_id)
            known_by = (topic_id, read_log_id(folder), folder.directory.path)
            identities = [_identity(named(folder), each, target_topic) for each in known_by if each is not None]
            identity = identities[0]
            if identity in self._seen:
                raise InvalidOptionError(
                    f"{folder.location} and {self._seen[identity]} are the same partition of the same topic, and both "
                    f"are to be copied to {target_topic}: copy one"
                )
            self._seen[identity] = folder.location
            # A ledger of an earlier version identifies a log by its path, and a topic may have got its id since.
            before = next((each for each in identities if each in self._moved), None)
            if before is not None:
                moved[named(folder)], landed = self._moved[before]
                self._refuse_lost(folder, landed)
        selected = source.logs.select(moved.get)
        damage = [each.damage for each in selected if each.damage is not None]
        if damage:
            damage[0].others = tuple(damage[1:])
            raise damage[0]
        ranges = {each.range.topic_partition: each for each in selected}
        bytes_max = piece_bytes_max(selected, self._task_bytes, self._workers)
        selection, skips_damage = source.logs.selection, source.logs.skips_damage
        for folder in folders:
            found = ranges.get(named(folder))
            landing = self._landing(folder, source.target_of(named(folder)))
            if found is None or found.layout is None:
                self._add_empty(folder, landing, selection.on_damage)
                continue
            is_committed = selection.isolation_level == "read_committed"
            whole = whole_batches(found.range, found.layout, is_committed=is_committed, skips_damage=skips_damage)
            of_log, cut_offset = found.layout, found.range.end_offset if self._cuts_batches else None
            found = replace(found, range=whole)
            last = moved.get(named(folder))
            self._add(found, of_log, landing, bytes_max, last, cut_offset, skips_damage=skips_damage)

    def _refuse_lost(self, folder: PartitionFolder, landed: tuple[Landed, ...]) -> None:
        lost = lost_since(self._directory, landed)
        if lost is not None:
            raise DataLossError(
                f"{folder.location} was copied before, and since then what was copied may be lost: {lost}. Copy all of "
                f"it again with since_last=False (--no-since-last), or copy to another directory"
            )

    def _cluster(self, directory: LogDirectory) -> str | None:
        if directory not in self._clusters:
            self._clusters[directory] = describe_directory(directory).cluster_id
        return self._clusters[directory]

    def _note_topic_id(self, folder: PartitionFolder, target_topic: str, topic_id: str | None) -> None:
        """Note the topic id of a source; None if the target's topic has another name or is of another cluster."""
        if target_topic not in self._topic_ids:
            there = [self._directory.folder(name) for name, is_folder in self._there.items() if is_folder]
            self._topic_ids[target_topic] = {_topic_id_of(each) for each in there if each.topic == target_topic}
        ours = self._cluster(self._directory)
        is_same = target_topic == folder.topic and ours in (None, self._cluster(folder.directory))
        self._topic_ids[target_topic].add(topic_id if is_same else None)

    def with_topic_ids(self) -> list[CopyPiece]:
        """Return the pieces; a new log gets the id of its topic if all sources agree on one."""
        ids = {topic: next(iter(found)) for topic, found in self._topic_ids.items() if len(found) == 1}
        return [
            replace(each, bounds=replace(each.bounds, topic_id=ids.get(self._landings[each.target].folder.topic)))
            if self._landings[each.target].is_new
            else each
            for each in self.pieces
        ]

    def _landing(self, source: PartitionFolder, at: TopicPartition) -> _Landing:
        """Return the target log of a partition, as it is after the pieces planned so far."""
        checked_partition(*at)
        folder = PartitionFolder(self._directory, at.topic, at.partition)
        if not self._there.get(folder.name, True):
            raise InvalidOptionError(f"{folder.location} is no folder, and is in the way of a log: move it away")
        if folder.name not in self._landings:
            self._landings[folder.name] = self._found(folder) if folder.name in self._there else _Landing(folder, True)
        storage = folder.storage
        if not self._landings[folder.name].is_new and storage.identity(folder.location) == source.storage.identity(
            source.location
        ):
            raise InvalidOptionError(f"{source.location} would be copied to itself: give its topic another name")
        return self._landings[folder.name]

    def _found(self, folder: PartitionFolder) -> _Landing:
        layout = read_layout(folder)
        path = folder.file(files.LEADER_EPOCH_CHECKPOINT)
        epochs = parse_leader_epochs(folder.storage.read_small(path) or b"", path)
        return _Landing(
            folder,
            is_new=False,
            is_empty=layout.start_offset == layout.end_offset,
            end_offset=layout.end_offset,
            leader_epoch=max((epoch for epoch, _ in epochs), default=0),
            layout=layout,
        )

    def _producers_of(self, found: Selected, landing: _Landing, before: Moved | None) -> str | None:
        """Return the name of a source whose producers get other ids; None if they keep their ids.

        Every cluster assigns ids from 0 on. If batches of another cluster keep their ids, a broker takes batches from
        its own producer with the same id for repetitions, acknowledges them, and writes nothing; or it fences the
        producer.
        """
        if before is not None and landing.has_open_transaction:
            # Markers with the ids of its batches end a transaction. Earlier versions kept all ids without a record.
            return before.producers_of
        source, folder = found.range.folder, landing.folder
        is_only_source = landing.is_empty or (before is not None and before.producers_of is None)
        is_same_topic = source.topic == folder.topic and _topic_id_of(folder) in (None, found.topic_id)
        ours = self._cluster(self._directory)
        is_same_cluster = ours is not None and ours == self._cluster(source.directory)
        if self._keeps_producers or (is_only_source and is_same_topic and is_same_cluster):
            return None
        return (before and before.producers_of) or found.topic_id or found.log_id or source.directory.path

    def _add_empty(self, folder: PartitionFolder, landing: _Landing, on_damage: OnDamage = "fail") -> None:
        """Create the target partition even if no batch is copied; with kept offsets it starts where the source does."""
        if not landing.is_new or landing.folder.name in self._targets:
            return
        layout = read_layout(folder, on_damage)
        end = layout.end_offset
        if self._cuts_batches or (self._keeps_offsets and layout.start_offset == end > 0):
            end = landing.end_offset = layout.start_offset
            landing.bounds = OffsetBounds(end, end)
        nothing = ReadRange(folder, end, end, end)
        moved = Moved(folder.topic, folder.partition or 0, nothing.start_offset, nothing.end_offset, 0, 0)
        origin = Origin(folder.location)
        self._put(CopyPiece(nothing, landing.folder.name, landing.end_offset, origin, landing.bounds, moved))

    def _put(self, piece: CopyPiece) -> None:
        self.pieces.append(piece)
        self._targets.add(piece.target)

    def _add(
        self,
        found: Selected,
        layout: PartitionLayout,
        landing: _Landing,
        bytes_max: int,
        before: Moved | None,
        cut_offset: int | None,
        *,
        skips_damage: bool,
    ) -> None:
        whole = found.range
        if whole.size <= 0:
            self._add_empty(layout.folder, landing, "skip" if skips_damage else "fail")
            if not (skips_damage and found.has_unread_end):
                return
        keeps_offsets = self._keeps_offsets
        first_offset = base_offset_at(layout, whole.start_offset, skips_damage=skips_damage)
        self._bound(first_offset, whole.end_offset, layout, landing)
        origin = Origin(layout.path, before is not None, keeps_offsets, landing.leader_epoch)
        producers_of = self._producers_of(found, landing, before)
        shift = 0 if keeps_offsets else landing.end_offset - first_offset
        base_offset = first_offset + shift
        for piece, log_bytes in cut_by_bytes(whole, layout, bytes_max) or [(whole, 0)]:
            at, epoch = piece.topic_partition, found.leader_epoch(piece.end_offset)
            moved = Moved(
                at.topic, at.partition, piece.start_offset, piece.end_offset, 0, log_bytes, found.topic_id, epoch,
                source=layout.folder.directory.path, target_topic=landing.folder.topic, producers_of=producers_of,
                log_id=found.log_id, end_batch=found.identity(piece.end_offset).end_batch,
            )  # fmt: skip
            damage = found.damage_of(piece) if skips_damage else None
            is_last = piece.end_offset == whole.end_offset
            of_piece = (piece, landing.folder.name, base_offset, origin, landing.bounds, moved)
            self._put(CopyPiece(*of_piece, damage, cut_offset if is_last else None, is_last))
            # If a piece was cut within a batch, the batch begins before the next piece; then kept offsets do too.
            base_offset = first_offset if keeps_offsets else piece.end_offset + shift
        landing.end_offset, landing.is_empty = whole.end_offset + shift, False

    def _bound(self, first_offset: int, end_offset: int, layout: PartitionLayout, landing: _Landing) -> None:
        """Set the start and end that the target log must get; raise if it cannot have them."""
        path, target = layout.path, landing.folder.location
        hidden = max(layout.start_offset - first_offset, 0)
        if hidden and not landing.is_empty:
            raise InvalidOptionError(
                f"the first batch of {path} has {hidden} offsets before its log start offset {layout.start_offset}, "
                f"where records were deleted that would be back in {target}, which is not empty. Begin behind that "
                f"batch, or copy to an empty log"
            )
        if not self._keeps_offsets:
            if hidden:
                landing.bounds = OffsetBounds(landing.end_offset + hidden)
            return
        if first_offset < landing.end_offset:
            raise InvalidOptionError(
                f"keep_offsets: the first offset of {path} that is to be copied is {first_offset}, and {target} "
                f"ends at offset {landing.end_offset}, so that it cannot take that offset. Begin there, or let the "
                f"offsets be counted on"
            )
        start_offset = first_offset + hidden if landing.is_empty else landing.bounds.start_offset
        landing.bounds = OffsetBounds(start_offset, end_offset if end_offset == layout.end_offset else None)


def _topic_id_of(folder: PartitionFolder) -> str | None:
    """Return the topic id of a partition; None if it has none."""
    path = folder.file(files.PARTITION_METADATA)
    data = folder.storage.read_small(path)
    return None if data is None else parse_topic_id(data, path)

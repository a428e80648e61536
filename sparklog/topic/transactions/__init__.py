"""Transactions over the partitions of a log directory, and who knows and does what of them.

    file                   knows                                             written by
    seglog.transactions    each transactional id: producer, state, folders   `ids`, `commit`
    __transaction_state    the same for a coordinator that adopts us         `coordinator_log`, brokers
    the logs               batches of the producer, and end markers          `writer` or staging, and `commit`
    seglog.offsets         group offsets that a transaction commits          `sparklog.write.group_offsets`
    seglog.journal         the commit that is decided and not done           `sparklog.write.journal`

**Two ways to write**, which end alike: one commit, decided by its journal, adds the markers to all partitions and
changes the three other files.

    commit.commit_transaction   the tasks of a job have staged the rows; the same commit adds rows and markers, so that
                                no log ever holds an open transaction
    commit.end_transaction      `writer` has appended the rows before; the logs hold an open transaction, at which
                                readers of committed records stop, until its markers are added

**Fencing.** Epochs are those of Kafka with ``transaction.version`` 2 (KIP-890). A marker has the epoch that follows
that of the transaction's batches, and so has the next transaction: no batch that comes late becomes part of it. A start
of a transactional id takes the next epoch too. Whoever started it before is refused with `InvalidProducerEpochError`
when it adds a partition or offsets, or ends the transaction (`ids.TransactionalIds.checked`).

**Where a writer dies**, under `writer`:

    before it wrote Ongoing down    nothing is open, and nothing is to be repaired
    after that, before its commit   the transaction is open. The next start of its id aborts it; so does the next start
                                    of any id of ours once its timeout is over; so does a coordinator, which finds the
                                    partitions in ``__transaction_state``; or a person, by `hanging`
    the journal is written          the end is decided. Whoever locks the directory next does the rest
                                    (`sparklog.write.journal.apply_journal`), and the group's consumer goes on behind it

A job that dies before its journal is written leaves staged files, which `sparklog.topic.write.commit.sweep` removes;
after that it is as above.

**Coordinators.** Ongoing is written before the first batch in each partition, since a coordinator that did not know of
it would leave readers waiting for good. A transaction that a coordinator has ended, or will, gets no marker from here:
the marker could end a later one of the same producer. Jobs need no Ongoing: there is nothing to be aborted. An id of
which a coordinator has another transaction open stays as it is, and so does a directory without all partitions.

**Hanging.** A transaction hangs where no coordinator knows of it, since its markers were written before its last batch
or the coordinator's log was lost; or where its time is over and no broker runs. `hanging` finds those and aborts them.

Source: apache/kafka, TransactionManager.java, TransactionCoordinator.scala, TransactionMetadata.java; KIP-98, KIP-890.
"""

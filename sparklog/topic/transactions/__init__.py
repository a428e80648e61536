"""Writes transactions over the partitions of a log directory; this page says which files and modules take part.

    file                   knows                                             written by
    seglog.transactions    each transactional id: producer, state, folders   `ids`, `commit`
    __transaction_state    the same, for a coordinator that adopts the logs  `coordinator_log`, brokers
    the logs               batches of the producer, and end markers          `writer` or staging, and `commit`
    seglog.offsets         group offsets that a transaction commits          `sparklog.write.group_offsets`
    seglog.journal         the decided and unfinished commit                 `sparklog.write.journal`

**Two ways to write** end alike: one commit, decided by its journal, adds the markers to all partitions and changes the
three other files.

    commit.commit_transaction   the tasks of a job have staged the rows; the same commit adds rows and markers, so that
                                no log ever holds an open transaction
    commit.end_transaction      `writer` has appended the rows before; the logs hold an open transaction, at which
                                readers of committed records stop, until its markers are added

**Fencing.** Epochs work as in Kafka with ``transaction.version`` 2 (KIP-890). A marker has the epoch after the epoch of
the transaction's batches, and so has the next transaction: no late batch becomes part of it. A start of a transactional
id takes the next epoch too. The writer that started it before is refused with `InvalidProducerEpochError` when it adds
a partition or offsets, or ends the transaction (`ids.TransactionalIds.checked`).

**If a writer dies**, under `writer`:

    before it wrote Ongoing         nothing is open, and there is nothing to repair
    after that, before its commit   the transaction is open. The next start of its id aborts it; so does the next start
                                    of any other id, once the timeout has passed; so does a coordinator, which finds the
                                    partitions in ``__transaction_state``; or a person, by `hanging`
    the journal is written          the end is decided. The next process that locks the directory does the rest
                                    (`sparklog.write.journal.apply_journal`); the group's consumer continues after it

A job that dies before its journal is written leaves staged files, which `sparklog.topic.write.commit.sweep` removes;
after that it is as above.

**Coordinators.** Ongoing is written before the first batch in each partition, because a coordinator that does not know
the transaction would leave readers waiting forever. A transaction that a coordinator has ended, or will end, gets no
marker from here: the marker could end a later transaction of the same producer. Jobs need no Ongoing: they leave
nothing to abort. Nothing is recorded for an id with another open transaction at a coordinator, nor in a directory that
lacks partitions of ``__transaction_state``.

**Hanging.** A transaction hangs if no coordinator knows it, because its markers were written before its last batch or
the coordinator's log was lost; or if its timeout has passed and no broker runs. `hanging` finds and aborts these.

Source: apache/kafka, TransactionManager.java, TransactionCoordinator.scala, TransactionMetadata.java; KIP-98, KIP-890.
"""

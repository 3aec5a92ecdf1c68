"""What is left of a damaged folder: verdicts and scores of rollouts that are gone are taken out before going on.

Whoever moves a corrupt shard of rollouts out of the folder, as the error asks, leaves their verdicts behind. The
rollouts are drawn and judged anew, so the old verdicts would count a second time, and of another response where an
engine does not honour seeds.
"""

from __future__ import annotations

import logging

import pyarrow.compute as pc
import pyarrow.parquet as pq

from limen.errors import StoreError
from limen.store import Run
from limen.store.writer import write_table

log = logging.getLogger(__name__)


def drop_orphans(run: Run, alone: bool) -> int:
    """Take verdicts and scores without a rollout out of the folder; their number. A verdict that another process writes
    meanwhile is none of them, since its rollout was there before.

    Raises `StoreError` where there are some and this process is not `alone` in the folder.
    """
    orphans = {}
    for table in ("verdicts", "scores"):
        derived = run.table(table, ["rollout_id"])
        if derived.num_rows:
            lost = derived.join(run.table("rollouts", ["rollout_id"]), "rollout_id", join_type="left anti")
            if lost.num_rows:
                orphans[table] = lost["rollout_id"].unique()
    if orphans and not alone:
        raise StoreError(
            f"{run.path} holds verdicts or scores of {max(map(len, orphans.values()))} rollouts that are gone: start "
            "the same command once without --share, which takes them out"
        )
    for table, ids in orphans.items():
        for shard in run.shards(table):
            rows = pq.read_table(shard)
            kept = rows.filter(pc.invert(pc.is_in(rows["rollout_id"], value_set=ids)))
            if kept.num_rows == 0:
                shard.unlink()
            elif kept.num_rows < rows.num_rows:
                write_table(shard, kept)
        log.warning("%s: %d rollouts are gone: their %s are taken out, and made anew", run.name, len(ids), table)
    return max(map(len, orphans.values()), default=0)

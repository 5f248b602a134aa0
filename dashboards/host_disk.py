"""Disk, retention and checkpoints of one host."""

from __future__ import annotations

from dashboards.board import Section, equal_row, row_of_widths
from dashboards.panels import (
    LOOK,
    NOW,
    QUIET,
    TROUBLE,
    Column,
    Panel,
    Query,
    graph_panel,
    state_panel,
    table_panel,
)
from dashboards.words import (
    BLOCKED,
    HIGH,
    KINDS,
    LOW,
    MARKS,
    NO_AGENT,
    NO_PRUNER,
    OUTCOMES,
    POLICIES,
    PROJECTS,
    THRESHOLDS,
)

ADDED_UP = "Of several homes bytes and marks are added up: choose one Home to compare."


def disk() -> Section:
    return Section(
        "Disk",
        [
            equal_row(10, _by_kind(), _files()),
            equal_row(8, _filesystem(), _thresholds(), _payload()),
            equal_row(8, _transcripts(), _checkpoints(), _projects()),
        ],
    )


def retention() -> Section:
    return Section(
        "Retention",
        [
            row_of_widths(9, (12, _policies()), (6, _unreachable()), (6, _blocked())),
            equal_row(8, _freed(), _deleted(), _runs()),
        ],
    )


def _by_kind() -> Panel:
    return graph_panel(
        "Bytes by kind",
        "What the homes take, as `du` counts it. The kind that grows tells what to do: transcripts "
        "and checkpoints are the pruner's (`hermes-exporter prune`), logs and cache are Hermes's "
        "own, `other` is a leak nobody knows yet: look at the largest folders of the home.",
        Query("sum by (kind) (hermes_disk_bytes{<home>})", "{{kind}}"),
        unit="bytes",
        stacked=True,
        colours=KINDS,
        legend="table",
        no_data=NO_AGENT,
    )


def _files() -> Panel:
    return graph_panel(
        "Files by kind",
        "Many small files make scans and backups slow and use up inodes (`df -i`) while bytes are "
        "still free. Checkpoints of the old layout are the usual cause: see what would go with "
        "`hermes-exporter prune --policy orphan_checkpoints --policy stale_checkpoints`.",
        Query("sum by (kind) (hermes_disk_files{<home>})", "{{kind}}"),
        stacked=True,
        colours=KINDS,
        legend="table",
        no_data=NO_AGENT,
    )


def _filesystem() -> Panel:
    return graph_panel(
        "Use of the filesystem",
        "Of the filesystem that holds each home, with the marks between which the pruner works. "
        "Above the high mark and no run: see what stands in the way below. If the homes are small, "
        "something else fills the disk and no pruning here will help.",
        [
            Query(
                "1 - hermes_filesystem_avail_bytes{<home>} / hermes_filesystem_size_bytes{<home>}",
                "{{home}}",
            ),
            Query('max(hermes_prune_threshold_high{<home>, threshold="disk_used"})', HIGH),
            Query('min(hermes_prune_threshold_low{<home>, threshold="disk_used"})', LOW),
        ],
        unit="percentunit",
        highest=1,
        marks=MARKS,
        no_data=NO_AGENT,
    )


def _transcripts() -> Panel:
    return graph_panel(
        "Transcripts and their marks",
        "Bytes of transcripts and request dumps. From the high mark on the pruner takes the oldest "
        "until the low mark is reached; see what it would take with `hermes-exporter prune`. "
        + ADDED_UP,
        [
            Query(
                'sum by (kind) (hermes_disk_bytes{<home>, kind=~"transcripts|request_dumps"})',
                "{{kind}}",
            ),
            *_marks("transcripts"),
        ],
        unit="bytes",
        stacked=True,
        colours=KINDS,
        marks=MARKS,
        no_data=NO_AGENT,
    )


def _checkpoints() -> Panel:
    return graph_panel(
        "Checkpoints and their marks",
        "Bytes of shadow repositories: old layout, shared store and archives. Orphans and stale "
        "projects go first; `hermes-exporter prune --policy orphan_checkpoints` lists them. "
        + ADDED_UP,
        [
            Query(
                'sum by (kind) (hermes_disk_bytes{<home>, kind=~"checkpoints_.+"})',
                "{{kind}}",
            ),
            *_marks("checkpoints"),
        ],
        unit="bytes",
        stacked=True,
        colours=KINDS,
        marks=MARKS,
        no_data=NO_AGENT,
    )


def _payload() -> Panel:
    return graph_panel(
        "Content of state.db and its marks",
        "The marks are held against the estimated content, not the file: deleting rows does not "
        "shrink a database file, only VACUUM does (`prune.upkeep.vacuum`, in quiet hours). "
        + ADDED_UP,
        [
            Query(
                'sum(hermes_prune_threshold_value{<home>, threshold="state_db_payload"})',
                "estimated content",
            ),
            Query('sum(hermes_disk_bytes{<home>, kind="state_db"})', "file"),
            *_marks("state_db_payload"),
        ],
        unit="bytes",
        colours={"file": QUIET, "estimated content": "blue"},
        marks=MARKS,
        no_data=NO_AGENT,
    )


def _marks(threshold: str) -> list[Query]:
    """Return queries for the thresholds, summed over the homes shown, as the bytes are."""
    matchers = f'{{<home>, threshold="{threshold}"}}'
    return [
        Query(f"sum(hermes_prune_threshold_high{matchers})", HIGH),
        Query(f"sum(hermes_prune_threshold_low{matchers})", LOW),
    ]


def _thresholds() -> Panel:
    return graph_panel(
        "How near each threshold is",
        "The worst home's value as a share of its high mark; at 100% pruning begins, or would if "
        "it were allowed to. Raise the mark in the configuration, or let it prune.",
        [
            Query(
                "max by (threshold) (hermes_prune_threshold_value{<home>} / "
                "hermes_prune_threshold_high{<home>})",
                "{{threshold}}",
            ),
            Query("0 * max(hermes_prune_threshold_high{<home>}) + 1", HIGH),
        ],
        unit="percentunit",
        colours=THRESHOLDS,
        marks={HIGH: NOW},
        no_data=NO_PRUNER,
    )


def _unreachable() -> Panel:
    return graph_panel(
        "Bytes that no policy may free",
        "Above the low mark and kept, by threshold and reason. `trash`: it comes free after "
        "trash.min_keep; `caps`: it follows the next day. Otherwise widen a policy, raise the mark "
        "or add space: no run will help.",
        Query(
            "sum by (threshold, reason) (hermes_prune_unreachable_bytes{<home>})",
            "{{threshold}}: {{reason}}",
        ),
        unit="bytes",
        stacked=True,
        shades=LOOK,
        reaches=2.0**20,
        no_data="Every threshold can be reached",
    )


def _blocked() -> Panel:
    return state_panel(
        "Pruning that is blocked",
        "Why a home is not pruned though it is under pressure. Most reasons "
        "are something that cannot be read: `hermes-exporter check` says what to grant.",
        Query(
            "max by (instance, home, reason) (hermes_prune_blocked{<home>})", "{{home}}: {{reason}}"
        ),
        words=BLOCKED,
        no_data="Nothing is blocked",
    )


def _policies() -> Panel:
    return table_panel(
        "Policies at work",
        "Proof that retention works. Eligible and old, in enforce mode: the pruner does not do its "
        "work; look at `hermes-exporter history`. In observe mode it is what would go; see it with "
        "`hermes-exporter prune`.",
        [
            Column(
                "Eligible",
                "sum by (home, policy) (hermes_retention_eligible{<home>})",
                steps=TROUBLE,
                decimals=0,
            ),
            Column(
                "Could free",
                "sum by (home, policy) (hermes_disk_reclaimable_bytes{<home>})",
                unit="bytes",
            ),
            Column(
                "Oldest item",
                "time() - min by (home, policy) "
                "(hermes_retention_oldest_timestamp_seconds{<home>})",
                unit="s",
            ),
        ],
        labels={"home": "Home", "policy": "Policy"},
        widths={"Policy": 170},
        sort="Could free",
        no_data=NO_PRUNER,
    )


def _freed() -> Panel:
    return graph_panel(
        "Freed by pruning in the last hour",
        "What was given back, by policy. Runs without bytes here freed nothing: the trash still "
        "keeps it, or only VACUUM gives it back.",
        Query(
            "sum by (policy) (increase(hermes_prune_freed_bytes_total{<home>}[1h]))",
            "{{policy}}",
        ),
        unit="bytes",
        stacked=True,
        colours=POLICIES,
        no_data=NO_PRUNER,
    )


def _deleted() -> Panel:
    return graph_panel(
        "Items pruned in the last hour",
        "Sessions, files and checkpoints that went to the trash, by policy. More than you "
        "expected? `hermes-exporter history` lists the runs, `hermes-exporter undo RUN` gives one "
        "back.",
        Query(
            "sum by (policy) (increase(hermes_prune_deleted_total{<home>}[1h]))",
            "{{policy}}",
        ),
        stacked=True,
        colours=POLICIES,
        no_data=NO_PRUNER,
    )


def _runs() -> Panel:
    return graph_panel(
        "Prune runs in the last hour",
        "Runs by outcome. A failed or partial one says why in `hermes-exporter history`; nothing "
        "is lost, and it is taken up again.",
        Query(
            "sum by (outcome) (increase(hermes_prune_runs_total{<home>}[1h]))",
            "{{outcome}}",
        ),
        stacked=True,
        edges=False,
        colours=OUTCOMES,
        no_data=NO_PRUNER,
    )


def _projects() -> Panel:
    return graph_panel(
        "Checkpoint projects",
        "Shadow repositories by layout and state. Orphan: the work folder is gone. Stale: unused "
        "for long. Both are the pruner's: `hermes-exporter prune --policy orphan_checkpoints`.",
        Query(
            "sum by (layout, state) (hermes_checkpoint_projects{<home>})", "{{layout}} {{state}}"
        ),
        stacked=True,
        colours=PROJECTS,
        no_data="No checkpoints",
    )

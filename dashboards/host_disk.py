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
    DAYS,
    HIGH,
    KINDS,
    LOW,
    NO_AGENT,
    NO_PRUNER,
    OUTCOMES,
    POLICIES,
    PROJECTS,
    THRESHOLDS,
    WATERMARKS,
)

ADDED_UP = "For several homes, bytes and watermarks are summed: choose one Home to compare."


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
            row_of_widths(9, (10, _policies()), (6, _unreachable()), (8, _blocked())),
            equal_row(8, _freed(), _deleted(), _runs()),
        ],
    )


def _by_kind() -> Panel:
    return graph_panel(
        "Bytes by kind",
        "Disk use as `du` counts it. Which kind grows? Transcripts and checkpoints: "
        "`hermes-exporter prune` can free them. Logs and cache belong to Hermes. `other` is of "
        "no known kind: check the largest folders of the home.",
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
        "Use of the filesystem that holds each home, with the high and low watermark of "
        "`disk_used`. Above the high watermark without a run: see Pruning that is blocked "
        "below. If the homes are small, something else fills the disk, and pruning cannot help.",
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
        marks=WATERMARKS,
        no_data=NO_AGENT,
    )


def _transcripts() -> Panel:
    return graph_panel(
        "Transcripts and their watermarks",
        "Bytes of transcripts and request dumps. Above the high watermark the pruner takes the "
        "oldest until the low watermark is reached; `hermes-exporter prune` shows what it would "
        "take. " + ADDED_UP,
        [
            Query(
                'sum by (kind) (hermes_disk_bytes{<home>, kind=~"transcripts|request_dumps"})',
                "{{kind}}",
            ),
            *_watermarks("transcripts"),
        ],
        unit="bytes",
        stacked=True,
        colours=KINDS,
        marks=WATERMARKS,
        no_data=NO_AGENT,
    )


def _checkpoints() -> Panel:
    return graph_panel(
        "Checkpoints and their watermarks",
        "Bytes of shadow repositories: old layout, shared store and archives. Orphans and stale "
        "projects go first; `hermes-exporter prune --policy orphan_checkpoints` lists them. "
        + ADDED_UP,
        [
            Query(
                'sum by (kind) (hermes_disk_bytes{<home>, kind=~"checkpoints_.+"})',
                "{{kind}}",
            ),
            *_watermarks("checkpoints"),
        ],
        unit="bytes",
        stacked=True,
        colours=KINDS,
        marks=WATERMARKS,
        no_data=NO_AGENT,
    )


def _payload() -> Panel:
    return graph_panel(
        "Content of state.db and its watermarks",
        "The watermarks apply to the estimated content, not to the file: deleting rows does not "
        "shrink a database file, only VACUUM does (`prune.upkeep.vacuum`, while no process uses "
        "it). " + ADDED_UP,
        [
            Query(
                'sum(hermes_prune_threshold_value{<home>, threshold="state_db_payload"})',
                "estimated content",
            ),
            Query('sum(hermes_disk_bytes{<home>, kind="state_db"})', "file"),
            *_watermarks("state_db_payload"),
        ],
        unit="bytes",
        colours={"file": QUIET, "estimated content": "blue"},
        marks=WATERMARKS,
        no_data=NO_AGENT,
    )


def _watermarks(threshold: str) -> list[Query]:
    """Return queries for the thresholds, summed over the homes shown, as the bytes are."""
    matchers = f'{{<home>, threshold="{threshold}"}}'
    return [
        Query(f"sum(hermes_prune_threshold_high{matchers})", HIGH),
        Query(f"sum(hermes_prune_threshold_low{matchers})", LOW),
    ]


def _thresholds() -> Panel:
    return graph_panel(
        "How near each threshold is",
        "The worst home's value, as a share of its high watermark. At 100% pruning starts if it "
        "is enforced. Raise the watermark in the configuration, or enforce pruning.",
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
        "Bytes above the low watermark that stay, by threshold and reason. `trash`: free after "
        "trash.min_keep; `caps`: taken the next day. Otherwise extend a policy, raise the "
        "watermark or add space: no run can help.",
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
        "Why a home under pressure is not pruned. Mostly something cannot be read: "
        "`hermes-exporter check` says what to grant.",
        Query(
            "max by (instance, home, reason) (hermes_prune_blocked{<home>})",
            "{{home}}: {{reason}}",
        ),
        words=BLOCKED,
        no_data="Nothing is blocked",
    )


def _policies() -> Panel:
    return table_panel(
        "Policies at work",
        "What each policy covers now. Old eligible items in enforce mode: the pruner does not "
        "do its work; check `hermes-exporter history`. In observe mode: `hermes-exporter prune` "
        "lists what would be pruned.",
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
                "(time() - min by (home, policy) "
                "(hermes_retention_oldest_timestamp_seconds{<home>})) / 86400",
                unit=DAYS,
                decimals=0,
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
        "Bytes that became free, by policy. Runs without bytes here freed nothing yet: the "
        "items are in the trash, or the rows wait for VACUUM.",
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
        "Sessions, files and checkpoints moved to the trash, by policy. More than expected? "
        "`hermes-exporter history` lists the runs, `hermes-exporter undo RUN` restores one.",
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
        "Runs by outcome. For a failed or partial run `hermes-exporter history` says why; "
        "nothing is lost, and the next run continues.",
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
        "Shadow repositories by layout and state. Orphan: the working directory is gone. Stale: "
        "not used for a long time. `hermes-exporter prune --policy orphan_checkpoints` shows "
        "what can be pruned.",
        Query(
            "sum by (layout, state) (hermes_checkpoint_projects{<home>})", "{{layout}} {{state}}"
        ),
        stacked=True,
        colours=PROJECTS,
        no_data="No checkpoints",
    )

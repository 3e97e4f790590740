"""What doctor may find by itself, in the words that it prints; docs/doctor.md says more of each. What an engine finds
about its server has words of its own."""

from __future__ import annotations

from typing import Literal, NamedTuple

from distlock.backends.probe import Finding

Level = Literal["warning", "note"]
About = Literal["server", "host", "configuration"]


class Noted(NamedTuple):
    """A finding with its place in the report. Warnings make the exit code 1, notes do not."""

    key: str
    """Stable, for programs."""
    about: About
    level: Level
    finding: Finding


class Advice(NamedTuple):
    key: str
    about: About
    level: Level
    meaning: str
    remedy: str

    def found(self, evidence: str) -> Noted:
        return Noted(self.key, self.about, self.level, Finding(self.meaning, evidence, self.remedy))


def of_server(finding: Finding) -> Noted:
    """What the engine found."""
    return Noted("server", "server", "warning", finding)


STATE_UNWRITABLE = Advice(
    "state-directory-unwritable",
    "host",
    "warning",
    "Lease files and the journal cannot be written, nor the locks of local: jobs have no DISTLOCK_LEASE, so check"
    " cannot answer them, and history and metrics stay empty.",
    "Let this user write there, or set DISTLOCK_STATE_DIR to a folder on a local disk.",
)
STATE_FULL = Advice(
    "state-directory-full",
    "host",
    "warning",
    "What a job has to find on this disk cannot be written any more: locks of local: (69), lease files, the journal.",
    "Make room, or set DISTLOCK_STATE_DIR to a folder on another local disk.",
)
STATE_HANGS = Advice(
    "state-directory-hangs",
    "host",
    "warning",
    "The disk of the state directory does not answer: local: locks hang, and jobs have no lease file.",
    "Move it off a network file system with DISTLOCK_STATE_DIR, or see to the disk.",
)
PAUSES = Advice(
    "pauses",
    "host",
    "warning",
    "This machine pauses its processes for so long that a command may be stopped late, or its lease not be renewed in"
    " time.",
    "Give it more processor time (load, limits of a container, steal of a virtual machine), or take a longer --ttl.",
)
LIBRARY = Advice(
    "library-version",
    "host",
    "warning",
    "A library is missing or of a release that distlock was not made for: its engine may fail or, worse, misread.",
    "Install distlock in a virtual environment of its own, where nothing else decides about versions.",
)
NO_BACKEND = Advice(
    "no-backend-named",
    "configuration",
    "warning",
    "Nobody has named a backend, so locks are those of local: on this host alone; the same crontab on another host"
    " runs the same job at the same time.",
    'Name one: backend = "…" in /etc/distlock/config.toml, or DISTLOCK_BACKEND in the crontab; local: too, if one host'
    " is meant.",
)
ONLY_HERE = Advice(
    "backend-of-this-command",
    "configuration",
    "note",
    "A job that is not started from here, from cron say, does not use the backend that was looked at.",
    'Write backend = "…" into /etc/distlock/config.toml, or set DISTLOCK_BACKEND in the crontab as well.',
)
SEVERAL_ENGINES = Advice(
    "several-engines",
    "configuration",
    "warning",
    "A lock is in one backend only: two runs that name different ones both get it; and fencing tokens of different"
    " engines do not compare.",
    'Let each lock have one backend, best by [locks."…"] in one file for all hosts; reset its fence registers when it'
    " moves (fence --reset).",
)
BROKEN_PROFILE = Advice(
    "profile-broken",
    "configuration",
    "warning",
    "A backend of the configuration cannot be used as written: runs that name it end with 78.",
    "Mend its url, or remove it.",
)
PASSWORD_IN_ARGUMENTS = Advice(
    "password-in-arguments",
    "configuration",
    "warning",
    "A password in -b can be read by everybody on this host, in the list of processes.",
    "Use DISTLOCK_PASSWORD, or password_file in the configuration.",
)
PASSWORD_IN_ENVIRONMENT = Advice(
    "password-in-environment",
    "configuration",
    "note",
    "A password in DISTLOCK_BACKEND is inherited by the command, and by all that it starts.",
    "Use DISTLOCK_PASSWORD, which is removed, or password_file in the configuration.",
)
CLASS_REFUSED = Advice(
    "class-refused",
    "configuration",
    "warning",
    "The configuration asks for --require correctness, which this backend does not have: runs end with 77.",
    "Name a backend that has it (distlock backends), or mend what is said of its settings.",
)
NOT_ALLOWED = Advice(
    "not-allowed",
    "server",
    "warning",
    "This login may look, but not take locks: runs end with 77.",
    "Give it the right to write what distlock keeps there.",
)
SCRATCH_BUSY = Advice(
    "scratch-lock-busy",
    "server",
    "note",
    "Another doctor had the lock on which renewals are measured, so reads were measured instead.",
    "Ask again later.",
)
CLOCK_OFFSET = Advice(
    "clock-offset",
    "server",
    "warning",
    "The clocks of this host and the server differ: no lease depends on that, but times that people are shown are"
    " wrong by so much (SINCE and HELD in status, last success in inspect).",
    "Synchronise both with NTP (chrony, systemd-timesyncd).",
)
TTL_SHORT = Advice(
    "ttl-too-short",
    "configuration",
    "warning",
    "A TTL is shorter than the measured round trips and pauses allow for: jobs will be stopped for no reason.",
    "Take a --ttl of at least the one that is proposed.",
)
TTL_LONG = Advice(
    "ttl-too-long",
    "configuration",
    "warning",
    "A lock whose host has died is nobody's for its whole TTL; renewals keep a short lease for as long as a job runs,"
    " so a long one gains nothing.",
    "Take the --ttl that is proposed; it needs not be as long as the job.",
)
TTL_CUT = Advice(
    "ttl-above-server",
    "configuration",
    "warning",
    "The server grants no lease of this length and cuts it: outages shorter than expected end a job.",
    "Take a --ttl within the server's bounds, or raise those.",
)
TTL_STRETCHED = Advice(
    "ttl-below-server",
    "configuration",
    "warning",
    "The server stretches a lease of this length to its own shortest: the lock of a host that died is free later than"
    " expected.",
    "Take a --ttl within the server's bounds, or lower those.",
)
TTL_RECOVERY = Advice(
    "ttl-above-recovery",
    "configuration",
    "warning",
    "With this TTL the lock of a host that has died stays unavailable for longer than --recovery asks.",
    "Take the --ttl that is proposed.",
)
RECOVERY_UNMET = Advice(
    "recovery-not-met",
    "server",
    "warning",
    "No TTL does what --recovery asks: one that is short enough would not outlast what was measured, or the server does"
    " not grant it.",
    "Allow for a longer recovery, or see to round trips and pauses.",
)

CATALOGUE = tuple(one for one in tuple(globals().values()) if isinstance(one, Advice))

"""The story of a group's rebalances: when, who came and went and why, how long it stood still, what to change (pure).

    begin (a reason) ──▶ more reasons ──▶ came, came, all_came ──▶ end       one Rebalance, newest last
    note (a reason)                                                          one that cost nobody anything

What happens while a rebalance is under way belongs to it, also when it makes the group begin another round: what
people feel is one time without records. Stories are kept in memory, as long as the broker lives and no longer; how
much, `GroupStories` sees to, over all groups.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kbroker.coordinator.group_sentences import LONGEST_NAME, Described, Told, name_of, seconds

MOST_REASONS = 20
"""Of one rebalance; of those beyond it is said how many there were."""
MOST_SENTENCES = 20_000
"""Over all groups: some ten megabytes."""
MOST_GONE = 32
LONGEST_GROUP_ID = 255
"""Characters; of groups with longer ones nothing is told."""
LONG_MS = 10_000
"""A wait that is worth a word of advice."""
WORTH_TELLING_MS = 500
RESTART_MS = 120_000
"""So long after a member had gone, one of the same client is taken for the same one, started again."""


@dataclass(slots=True)
class Rebalance:
    """One of them; times are of the coordinator's steady clock."""

    began_at: int
    reasons: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    ended_at: int | None = None
    """None: it is under way."""
    generation_id: int = -1
    """That it ended with, or the epoch of a group of the newer protocol; -1: with none."""
    members: int = 0
    outcome: str = ""
    more_reasons: int = 0

    @property
    def sentences(self) -> int:
        """How much of the memory for all stories it takes."""
        return 1 + len(self.reasons) + len(self.advice)

    def all_reasons(self) -> list[str]:
        """Return the reasons, with a word on those that are not kept."""
        return [*self.reasons, f"and {self.more_reasons} more"] if self.more_reasons else self.reasons


class GroupStory:
    """What is told of one group. `size`: how many rebalances are kept, 0: none."""

    __slots__ = ("_all_came_at", "_ended", "_gone", "_grew", "_last", "group_id", "rebalances")

    def __init__(
        self,
        group_id: str = "",
        size: int = 100,
        grew: Callable[[GroupStory, int], None] | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called whenever the members have what they shall read, though nothing may be told of it."""
        self.group_id = group_id
        self.rebalances: deque[Rebalance] = deque(maxlen=size)
        self._grew = grew
        self._ended = ended
        self._last: tuple[str, int] | None = None
        """Who was the last to come in the round under way, and when."""
        self._all_came_at: int | None = None
        self._gone: dict[str, int] = {}
        """Clients of which a member has gone, and when."""

    # --- what happens -----------------------------------------------------------------------------------------

    @property
    def open(self) -> Rebalance | None:
        """The rebalance that is under way."""
        last = self.rebalances[-1] if self.rebalances else None
        return last if last is not None and last.ended_at is None else None

    def begin(self, now: int, told: Told) -> None:
        """Something makes the group rebalance, or happens while it does."""
        rebalance = self.open
        if rebalance is None:
            rebalance = self._add(Rebalance(now))
        self._tell(rebalance, told)

    def note(self, now: int, told: Told, outcome: str = "nobody had to stop reading") -> None:
        """Tell something that makes nobody wait; while a rebalance is under way it belongs to that."""
        rebalance = self.open
        if rebalance is None:
            rebalance = self._add(Rebalance(now, ended_at=now, outcome=outcome))
        self._tell(rebalance, told)

    def add(self, told: Told, words: str) -> None:
        """Add to the rebalance under way what many members may say alike: once, of those that end with these words.

        Behind them is nothing but a colon and the client's own reason.
        """
        rebalance = self.open
        if rebalance is not None and not any(f"{words}:" in f"{reason}:" for reason in rebalance.reasons):
            self._tell(rebalance, told)

    def came(self, now: int, member: Described) -> None:
        """A member has done what the round asks of it."""
        if self.open is not None:
            self._last = name_of(member), now

    def all_came(self, now: int) -> None:
        """Nobody else is waited for: the leader assigns."""
        self._all_came_at = now

    def end(self, now: int, generation_id: int, members: int, leader: Described | None, is_cooperative: bool) -> None:
        """The members have what they shall read; `leader`: who assigned it, None for the coordinator."""
        self._ended()
        rebalance = self.open
        if rebalance is None:
            return
        took_ms = now - rebalance.began_at
        how = f"it took {seconds(took_ms)}, in which only what moved stood still"
        parts = [how if is_cooperative else f"the group stood still for {seconds(took_ms)}"]
        if self._last is not None and self._last[1] - rebalance.began_at >= WORTH_TELLING_MS:
            waited_ms = self._last[1] - rebalance.began_at
            share = "all" if seconds(waited_ms) == seconds(took_ms) else seconds(waited_ms)
            parts.append(f"{share} of it until {self._last[0]} was there")
            if waited_ms >= LONG_MS:
                advice = f"{self._last[0]} came last: members answer at their next poll, so lower max.poll.records."
                self._tell_advice(rebalance, advice)
        if leader is not None and self._all_came_at is not None and now - self._all_came_at >= WORTH_TELLING_MS:
            parts.append(f"{seconds(now - self._all_came_at)} until {name_of(leader)} had assigned")
        word = "member" if members == 1 else "members"
        self._close(now, rebalance, f"generation {generation_id} of {members} {word}; {', '.join(parts)}")
        rebalance.generation_id, rebalance.members = generation_id, members

    def end_empty(self, now: int, generation_id: int) -> None:
        """Nobody is left."""
        rebalance = self.open
        if rebalance is not None:
            self._close(now, rebalance, "nobody is in the group any more")
            rebalance.generation_id = generation_id

    def moved_away(self, now: int, why: str) -> None:
        """The coordinator of a group of which something is told ceases to be it."""
        rebalance = self.open
        if rebalance is not None:
            self._close(now, rebalance, why)
        elif self.rebalances:
            self.note(now, Told(why), outcome="")

    def gone(self, now: int, client_id: str) -> None:
        """A member of this client has gone."""
        client_id = client_id[:LONGEST_NAME]
        self._gone.pop(client_id, None)
        self._gone[client_id] = now
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def gone_for_ms(self, now: int, client_id: str) -> int | None:
        """Return how long a member of this client has been missing, None when none is; it is not told again."""
        since = self._gone.pop(client_id[:LONGEST_NAME], None)
        return None if since is None or not client_id or now - since > RESTART_MS else now - since

    # --- how it is kept ---------------------------------------------------------------------------------------

    def forget_oldest(self) -> int:
        """Drop the oldest; returns how many sentences that were."""
        return self.rebalances.popleft().sentences

    def _add(self, rebalance: Rebalance) -> Rebalance:
        self._last = self._all_came_at = None
        if len(self.rebalances) == self.rebalances.maxlen and self.rebalances:
            self._note_growth(-self.rebalances[0].sentences)
        self.rebalances.append(rebalance)
        self._note_growth(rebalance.sentences)
        return rebalance

    def _close(self, now: int, rebalance: Rebalance, outcome: str) -> None:
        rebalance.ended_at, rebalance.outcome = now, outcome

    def _tell(self, rebalance: Rebalance, told: Told) -> None:
        if len(rebalance.reasons) >= MOST_REASONS:
            rebalance.more_reasons += 1
            return
        rebalance.reasons.append(told.what)
        self._note_growth(1)
        if told.advice:
            self._tell_advice(rebalance, told.advice)

    def _tell_advice(self, rebalance: Rebalance, advice: str) -> None:
        if advice not in rebalance.advice:
            rebalance.advice.append(advice)
            self._note_growth(1)

    def _note_growth(self, sentences: int) -> None:
        if self._grew is not None and self.rebalances.maxlen:
            self._grew(self, sentences)


class GroupStories:
    """The stories of all groups; what was told longest ago makes room for what is new."""

    def __init__(self, size: int, most_sentences: int = MOST_SENTENCES) -> None:
        self.size = size
        self.ended = 0
        """Rebalances of all groups that have ended."""
        self._most_sentences = most_sentences
        self._told: OrderedDict[str, GroupStory] = OrderedDict()
        """Of groups of which something is told; the one that was told something longest ago comes first."""
        self._sentences = 0

    def of(self, group_id: str) -> GroupStory:
        """Return a group's story to go on with; one of which nothing is told takes no room."""
        size = self.size if len(group_id) <= LONGEST_GROUP_ID else 0
        return self._told.get(group_id) or GroupStory(group_id, size, self._grew, self._note_end)

    def _note_end(self) -> None:
        self.ended += 1

    def told(self, group_id: str) -> list[Rebalance]:
        """Return what is told of a group, the oldest first."""
        story = self._told.get(group_id)
        return [] if story is None else list(story.rebalances)

    def _grew(self, story: GroupStory, sentences: int) -> None:
        self._told[story.group_id] = story
        self._told.move_to_end(story.group_id)
        self._sentences += sentences
        while self._sentences > self._most_sentences:
            group_id, oldest = next(iter(self._told.items()))
            if oldest.rebalances:
                self._sentences -= oldest.forget_oldest()
            if not oldest.rebalances:
                del self._told[group_id]

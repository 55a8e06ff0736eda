"""The verdict on a call: the strictest of all rules counts, regardless of their order.

The short form `approvals:` is one rule among them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from cadre.engine.calls.call_check import as_judged, input_schema
from cadre.engine.policies.origins import (
    ASKED,
    CLEAR,
    KNOWN,
    FirstStood,
    Origins,
    as_value,
    flat,
    leaves,
    links_in,
    normalized,
    stands_in,
)
from cadre.engine.policies.rules import (
    action_of,
    counted,
    is_planned,
    kind_of_call,
    rule_for,
    rules_in,
)
from cadre.engine.policies.tally import day_of
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.protocol.cards import CallMeaning
from cadre.protocol.policy import Policy, PolicyRule, Span, digest_of
from cadre.spec.expressions import ExpressionError, holds
from cadre.spec.policy import ALWAYS, NEVER, reason_to_ask
from cadre.spec.policy_file import is_about
from cadre.spec.templates.template_work import ChargedFunction

Verdict = Literal["allow", "hold", "deny"]

_MOST_ORIGINS = 64
"""Arguments whose origins are journaled."""

_LEAST_CARRIED = 6
"""Characters of a field that a text can be said to carry."""

_SHOWN_CHARS = 80


class Judgement(NamedTuple):
    """The verdict of the rules on a call."""

    verdict: Verdict = "allow"
    reason: str = ""
    """The reason why it is held or denied, for the model and for people."""
    rule: str = ""
    """Name of the first rule of that verdict; "" for the agent's `approvals`."""
    by: tuple[str, ...] = ()
    """Names and roles that may decide; (): everybody who may."""
    within: float | None = None
    """Seconds that it waits for a person; None: as the agent says."""
    event: ev.PolicyDecided | None = None
    """The decision as it is journaled; None where no policy has a rule about the call."""


class Wanted(NamedTuple):
    """A call that is requested."""

    id: str
    name: str
    arguments: dict[str, Any]
    """As they were journaled."""


class _Broken(NamedTuple):
    rule: PolicyRule
    policy: Policy
    why: str
    """Of an expression that has no value."""
    origins: Origins
    action: CallMeaning

    @property
    def verdict(self) -> Verdict:
        return "deny" if self.rule.deny and not self.why else "hold"


def policy_of(run: Run, name: str) -> str:
    """Return the short form for calls of a tool or team member: the spec's word on it, the tool's own, the spec's `*`,
    then its permission mode."""
    spec = run.spec
    if spec is None:
        return NEVER
    tool = run.tools.get(name)
    own = tool.approval if tool is not None else ""
    default = NEVER if spec.permission == "open" or tool is None else ALWAYS
    return spec.approvals.get(name) or own or spec.approvals.get("*") or default


def judge(
    run: Run,
    call: Wanted,
    before: Sequence[ev.AnyEvent] = (),
    arrival: Arrival | None = None,
    *,
    approved: bool = False,
) -> Judgement:
    """Return the verdict on a call.

    Args:
        run: the run as it is.
        call: the call.
        before: events of calls that are made in the same step before it, and are not true of the run yet.
        arrival: what the decision may know besides the run; None: calls of other runs do not count.
        approved: a person has agreed to it; rules that say who decides hold it nevertheless.
    """
    if not any(run.policies) and (approved or policy_of(run, call.name) == NEVER):
        return Judgement()
    given = given_to(run, call)
    short = None if approved else reason_to_ask(policy_of(run, call.name), given)
    broken, watched, is_ruled, facts = _broken_rules(run, call, given, _Counts(run, call.id, before, arrival))
    enforced = [one for one in broken if not (approved and one.verdict == "hold" and not one.rule.by)]
    verdict: Verdict = "hold" if short is not None else "allow"
    if any(one.verdict == "deny" for one in enforced):
        verdict = "deny"
    elif enforced:
        verdict = "hold"
    counting = [one for one in enforced if one.verdict == verdict]
    event = None
    if is_ruled:
        event = ev.PolicyDecided(
            call=call.id,
            name=call.name,
            verdict=verdict,
            rules=[*(one.rule.name for one in enforced), *(["approvals"] if short is not None else [])],
            watched=[one.rule.name for one in watched],
            policy=digest_of(run.policies),
            origins=_origins(run, call, given),
            facts=facts,
        )
    if not counting:
        return Judgement(verdict, short or "", event=event)
    reasons = [_reason(one, given) for one in counting]
    by = [set(one.rule.by) for one in counting if one.rule.by]
    return Judgement(
        verdict,
        "; ".join([*reasons, *([short] if short is not None and verdict == "hold" else [])]),
        counting[0].rule.name,
        tuple(sorted(set.intersection(*by))) if by else (),
        min((one.rule.within for one in counting if one.rule.within is not None), default=None),
        event,
    )


def _broken_rules(
    run: Run, call: Wanted, given: dict[str, Any], counts: "_Counts"
) -> tuple[list[_Broken], list[_Broken], bool, dict[str, float]]:
    """Return the rules that the call breaks, those of policies in `watch`, whether any rule is about it, and what was
    known from outside of this run."""
    broken: list[_Broken] = []
    watched: list[_Broken] = []
    is_ruled = False
    for group in run.policies:
        kind = kind_of_call(run, call.name, group)
        about = [(policy, rule) for policy, rule in rules_in(group) if is_about(rule, call.name, kind)]
        if not about or run.facts is None:
            continue
        is_ruled = True
        origins = Origins(run.facts, run.tools, group)
        action = rule_for(action_of(run, call.name, group), list(given))
        values = _values(run, call, given, (kind, action, origins), counts)
        for policy, rule in about:
            why = ""
            try:
                if not holds(rule.deny or rule.hold, values):
                    continue
            except ExpressionError as error:
                why = error.why  # any failure means that a person decides
            found = _Broken(rule, policy, why, origins, action)
            (watched if policy.mode == "watch" else broken).append(found)
    return broken, watched, is_ruled, counts.facts


def _values(
    run: Run,
    call: Wanted,
    given: dict[str, Any],
    known: tuple[str | None, CallMeaning, Origins],
    counts: "_Counts",
) -> dict[str, Any]:
    """Return what a condition may read of a call."""
    kind, action, origins = known
    values: dict[str, Any] = {**given}
    for name, named in (("to", action.to), ("what", action.what)):
        if named or name not in given:
            values[name] = flat(*(given.get(one) for one in named))
    if action.text or "text" not in given:
        texts = flat(*(given.get(one) for one in action.text))
        values["text"] = "\n".join(one for one in texts if isinstance(one, str))
    if action.amount:
        values["amount"] = given.get(action.amount)

    functions: dict[str, Callable[..., Any]] = {
        "origin": lambda value: origins.of(value).origin,
        "asked": lambda *of: origins.are(ASKED, of),
        "known": lambda *of: origins.are(KNOWN, of),
        "clear": lambda *of: origins.are(CLEAR, of),
        "made_up": lambda *of: any(origins.of(one).origin == "nowhere" for one in flat(*of)),
        "links": lambda *of: [link for one in flat(*of) if isinstance(one, str) for link in links_in(one)],
        "carries": lambda text, tool: _carries(run, text, tool),
        "count": partial(counts.over, "count"),
        "total": partial(counts.over, "total"),
    }
    return {
        **values,
        "args": list(given.values()),
        "tool": call.name,
        "does": kind or "",
        "private": action.private,
        "planned": is_planned(run, call.name),
        **{name: ChargedFunction(function) for name, function in functions.items()},
    }


class _Counts:
    """The calls before one that is judged: in its run, and in the runs that are counted together with it."""

    def __init__(self, run: Run, call: str, before: Sequence[ev.AnyEvent], arrival: Arrival | None) -> None:
        self._at = arrival.at if arrival is not None else None
        self._others = arrival.others if arrival is not None else {}
        self._sums = arrival.sums if arrival is not None else {}
        self._own = [one for id, one in run.facts.calls.items() if id != call] if run.facts is not None else []
        for event in before:
            match event:
                case (
                    ev.ToolCalled(tool=name, arguments=arguments) | ev.ApprovalRequested(name=name, arguments=arguments)
                ):
                    self._own.append(counted(run, name, arguments, self._at or 0.0))
                case ev.DelegateStarted(member=name):
                    self._own.append(counted(run, name, {}, self._at or 0.0))
                case _:
                    pass
        self.facts: dict[str, float] = {}
        """The figures asked of other runs, which a replay decides by."""

    def over(self, what: Literal["count", "total"], pattern: str, per: Span = "run") -> float:
        """Return the number of earlier calls that the pattern is about, or the sum of their amounts."""
        rule = PolicyRule(calls=[pattern])
        since = day_of(self._at) if per == "user_day" and self._at is not None else None
        own = [one for one in self._own if since is None or day_of(one.at) == since]
        mine = sum(1 if what == "count" else one.amount for one in own if is_about(rule, one.tool, one.does or None))
        if per == "run":
            return mine
        key = f"{what}:{pattern}:{per}"
        if key in self._sums:
            others = self._sums[key]
        else:
            tallied = self._others.get(per, [])
            others = sum(
                one.count if what == "count" else one.amount
                for one in tallied
                if is_about(rule, one.tool, one.does or None)
            )
        self.facts[key] = others
        return mine + others


def _carries(run: Run, text: Any, tool: str) -> bool:
    if run.facts is None:
        return False
    texts = [normalized(one) for one in flat(text) if isinstance(one, str)]
    for heard in run.facts.heard:
        if heard.tool != tool:
            continue
        fields = heard.text.split("\n")
        if any(len(one) >= _LEAST_CARRIED and stands_in(one, each) >= 0 for one in fields for each in texts):
            return True
    return False


def given_to(run: Run, call: Wanted) -> dict[str, Any]:
    """Return the arguments of a call as they are sent, with the defaults of those that the model leaves out."""
    properties = (input_schema(run, call.name) or {}).get("properties", {})
    defaults = {key: schema["default"] for key, schema in properties.items() if "default" in schema}
    return {**defaults, **as_judged(run, call.name, call.arguments)}


# --- what people and models read


def _origins(run: Run, call: Wanted, given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the origin of each argument, with the call and the place where it stood: of all but reading calls."""
    group = next(iter(run.policies), [])
    if run.facts is None or kind_of_call(run, call.name, group) == "read":
        return {}
    origins = Origins(run.facts, run.tools, group)
    found: dict[str, list[str]] = {}
    for path, value in leaves(dict(given)):
        if as_value(value) is not None and len(found) < _MOST_ORIGINS:
            found[path] = _told(origins.of(value))
    return found


def _told(origin: FirstStood) -> list[str]:
    if origin.place is not None:
        return [origin.origin, origin.place.call, str(origin.place)]
    return [origin.origin, "", origin.via] if origin.via else [origin.origin]


def _reason(one: _Broken, given: Mapping[str, Any]) -> str:
    name, because = one.rule.name, one.rule.because.strip().removesuffix(".")
    if one.why:
        return f"{name}: its condition has no value: {one.why}"
    head = f"{name}: {because}." if because else f"{name}: {one.rule.deny or one.rule.hold}."
    told = [
        f"{path} {_short(value)} {_stood(origin)}."
        for argument in (*one.action.to, *one.action.what)
        for path, value in leaves(given.get(argument), argument)
        if (origin := one.origins.of(value)).origin not in CLEAR
    ][:4]
    links = [
        f"{_short(link)} {_stood(origin)}."
        for argument in one.action.text
        for value in flat(given.get(argument))
        for link in (links_in(value) if isinstance(value, str) else ())
        if (origin := one.origins.of(link)).origin not in KNOWN
    ][:4]
    if not told and not links:
        return head
    sources = one.origins.sources()
    where = f" Sources that count: {', '.join(sources)}." if sources else ""
    return f"{head} {' '.join([*told, *links])}{where}"


def _stood(origin: FirstStood) -> str:
    if origin.origin == "nowhere":
        return "stands in nothing that was read"
    return f"first stood in {origin.place if origin.place is not None else origin.via or origin.origin}"


def _short(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"

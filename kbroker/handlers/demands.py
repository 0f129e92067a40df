"""What the sender of a request must be allowed to do: said where its handler is registered, and checked first.

    @handles(OffsetCommitRequest, on_group(READ), on_topics(READ))
    def offset_commit(services, ctx, request): ...

    on_cluster(CLUSTER_ACTION)   one of these operations on the cluster, or the whole request is refused
    on_group(READ), on_transactional_id(WRITE)     the same for what a field of the request names
    on_topics(READ), each(…)     elements of an array of the request: those refused are taken out before the handler
                                 sees it, and stand in its answer with their error; nothing left: it is not called
    when(condition, …)           only for requests of which that is true
    inside("…")                  the handler asks `ctx.authority` itself, for what only it knows
    nothing("…")                 everybody may: say why

A demand is a function of an `Asked`; where these do not do, a handler's module has its own. It returns None when it has
decided, or a generator that does so in turns. Refusals have the API's own form (refusals.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from copy import copy
from functools import partial
from operator import attrgetter
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kbroker.handlers.refusals import blank, refusal
from kbroker.handlers.registry import CloseConnection
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import EncodedArray, encode_elements
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.schema import schema_of
from kbroker.replica.turns import PORTION, portions
from kbroker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from kbroker.security.authorizer import right

if TYPE_CHECKING:
    from kbroker.handlers.context import RequestContext, Services
    from kbroker.security.authorizer import Everything

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID

REFUSED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

PRODUCE = 0


class Asked:
    """A request on its way to its handler: what its sender may not ask for is taken out, and answered apart."""

    __slots__ = ("_finish", "_left", "_refused", "authority", "ctx", "request", "services")

    def __init__(self, services: Services, ctx: RequestContext, request: Any, authority: Everything) -> None:
        self.services = services
        self.ctx = ctx
        self.request = request
        """What is left of it."""
        self.authority = authority
        self._refused: list[Callable[[], Any]] = []
        """What makes the answers to what was taken out: that may take long, and is done at last."""
        self._left = True
        self._finish: Callable[[Any], None] | None = None

    @property
    def version(self) -> int:
        """Of the request."""
        return self.ctx.api_version

    @property
    def api(self) -> str:
        """The name of the request's API."""
        return API_BY_KEY[self.ctx.api_key].name

    def may(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, times: int = 1) -> bool:
        """Whether its sender may do that; the audit log is told."""
        return self.authority.may(operation, resource, name, self.api, times)

    def could(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> bool:
        """The same where there is another way, or a refusal is no news."""
        return self.authority.could(operation, resource, name, self.api)

    def take_out(self, field: str, refused: Sequence[Any], code: ErrorCode, message: str | None = None) -> None:
        """The handler is not to see these elements of an array of the request; they are answered with the code."""
        gone = {id(each) for each in refused}
        apart, rest = copy(self.request), copy(self.request)
        setattr(apart, field, list(refused))
        setattr(rest, field, [each for each in getattr(self.request, field) if id(each) not in gone])
        self._left = bool(getattr(rest, field))
        self.request = rest
        self._refused.append(partial(refusal, self.ctx.api_key, apart, self.version, code, message))

    def answer(self, answer: Callable[[], Any]) -> None:
        """This makes the whole answer: the handler is not called."""
        self._refused.append(answer)
        self._left = False

    def finish(self, function: Callable[[Any], None]) -> None:
        """Call this with the answer before it is sent."""
        self._finish = function

    @property
    def is_left(self) -> bool:
        """Whether there is something for the handler to do."""
        return self._left

    @property
    def is_untouched(self) -> bool:
        """Whether the handler's answer is all there is to say."""
        return not self._refused and self._finish is None

    def complete(self, answer: Any) -> Any:
        """Return the handler's answer (None: it had nothing to answer, or was not called) with what was refused."""
        if self.ctx.api_key == PRODUCE and self.request.acks == 0 and self._refused:
            raise CloseConnection("Produce with acks=0 failed: it is not allowed")
        if answer is None:
            answer = blank(API_BY_KEY[self.ctx.api_key].response)
        for refused in self._refused:
            self._add(answer, refused())
        if self._finish is not None:
            self._finish(answer)
        return answer

    def _add(self, answer: Any, refused: Any) -> None:
        """Put the elements of the arrays of one answer into those of another."""
        for field in schema_of(type(answer)).fields:
            more = getattr(refused, field.name) if field.array else None
            if not more:
                continue
            there = getattr(answer, field.name) or []
            if isinstance(there, EncodedArray):
                encoded = encode_elements(more, type(answer), self.version)
                setattr(answer, field.name, EncodedArray(there.count + len(more), [*there.parts, encoded]))
            else:
                setattr(answer, field.name, [*there, *more])


Steps = Generator[None, None, None]
Demand = Callable[[Asked], "Steps | None"]
Condition = Callable[[Asked], bool]
LongCondition = Callable[[Asked], "bool | Generator[None, None, bool]"]
"""Where a request is large it may be decided in turns."""
Quick = Callable[["Everything", Any], bool]
"""(authority, request) -> whether it is known already that nothing is to be refused. Hot APIs' demands have one."""


def with_quick(demand: Demand, quick: Quick) -> Demand:
    """Return the demand with its quick answer."""
    demand.quick = quick  # type: ignore[attr-defined]
    return demand


def quick_of(demands: Sequence[Demand]) -> Quick | None:
    """Return one quick answer for all demands, None where one of them has none."""
    quick: Quick | None = None
    for demand in reversed(demands):
        field = getattr(demand, "only_with", None)
        answer: Quick | None = getattr(demand, "quick", None)
        if field is not None:
            quick = _without(field, quick)
        elif answer is None:
            return None
        else:
            quick = answer if quick is None else _both(answer, quick)
    return quick


def _both(first: Quick, second: Quick) -> Quick:
    return lambda authority, request: first(authority, request) and second(authority, request)


def _without(field: str, rest: Quick | None) -> Quick:
    """Return the quick answer where a demand concerns only requests with a field."""
    value = attrgetter(field)
    if rest is None:
        return lambda authority, request: value(request) is None
    return lambda authority, request: value(request) is None and rest(authority, request)


def together(demands: Sequence[Demand]) -> Demand:
    """Return one demand for several, in their order."""
    if len(demands) == 1:
        return demands[0]

    def demand(asked: Asked) -> Steps | None:
        remaining = iter(demands)
        for each in remaining:
            if not asked.is_left:
                return None
            steps = each(asked)
            if steps is not None:
                return _go_on(asked, steps, remaining)
        return None

    return demand


def _go_on(asked: Asked, steps: Steps, remaining: Iterable[Demand]) -> Steps:
    yield from steps
    for each in remaining:
        if asked.is_left:
            yield from each(asked) or ()


def nothing(why: str) -> Demand:
    """Everybody may."""
    assert why
    return lambda asked: None


def inside(what: str) -> Demand:
    """The handler asks itself."""
    assert what
    return with_quick(lambda asked: None, lambda authority, request: True)


def when(
    condition: LongCondition, demand: Demand, otherwise: Demand | None = None, *, only_with: str | None = None
) -> Demand:
    """Demand this where the condition is true, else the other, if there is one.

    Where the field `only_with` of the request is None the condition is false, and there is no other: a quick answer.
    """
    assert only_with is None or otherwise is None

    def choose(asked: Asked) -> Steps | None:
        told = condition(asked)
        return choose_in_turns(asked, told) if isinstance(told, GeneratorType) else chosen(asked, told)

    def choose_in_turns(asked: Asked, deciding: Generator[None, None, bool]) -> Steps:
        yield from chosen(asked, (yield from deciding)) or ()

    def chosen(asked: Asked, is_true: object) -> Steps | None:
        one = demand if is_true else otherwise
        return None if one is None else one(asked)

    choose.only_with = only_with  # type: ignore[attr-defined]
    return choose


def since_version(version: int) -> Condition:
    """Requests of this version and of later ones."""
    return lambda asked: asked.version >= version


def controller_first(asked: Asked) -> None:
    """Who asks a broker that is not the controller hears that first."""
    require_controller(asked.services)


def require_controller(services: Services) -> None:
    """Raise NOT_CONTROLLER unless this broker is the controller, and its metadata say so.

    A new controller tells of the cluster a moment later, itself too: it would say that there are no brokers.
    """
    if not services.controller.is_active or services.metadata.controller_id != services.broker_id:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)


def on_cluster(*operations: AclOperation) -> Demand:
    """One of the operations on the cluster."""
    *others, last = operations

    def demand(asked: Asked) -> None:
        if not any(asked.could(other, CLUSTER) for other in others) and not asked.may(last, CLUSTER):
            raise KafkaError(REFUSED[CLUSTER])

    return demand


def named(resource: AclResource, operation: AclOperation, field: str) -> Demand:
    """An operation on what a field of the request names."""
    name = attrgetter(field)

    def demand(asked: Asked) -> None:
        if not asked.may(operation, resource, name(asked.request) or ""):
            raise KafkaError(REFUSED[resource])

    return demand


def on_group(operation: AclOperation, field: str = "group_id") -> Demand:
    """An operation on the request's group."""
    return named(GROUP, operation, field)


def on_transactional_id(operation: AclOperation, field: str = "transactional_id") -> Demand:
    """An operation on the request's transactional id."""
    return named(TRANSACTIONAL_ID, operation, field)


def each(
    resource: AclResource,
    operation: AclOperation,
    field: str,
    name: str | None = "name",
    *,
    unless: Condition | None = None,
    leaving: Callable[[Any, Counter[str]], bool] | None = None,
    message: str | None = None,
) -> Demand:
    """An operation on each resource that an array of the request names.

    Args:
        resource: the type of the resources.
        operation: what is to be done with them.
        field: the array.
        name: the attribute of its elements that holds a resource's name; None: they are the names.
        unless: what makes all this needless.
        leaving: which elements the handler is to refuse for a reason that comes first; it is also given how often each
            name occurs.
        message: what is said beside the code.
    """
    elements_of = attrgetter(field)
    wanted = right(operation, resource)
    name_of: Callable[[Any], str] = (lambda element: element) if name is None else attrgetter(name)

    def judge(asked: Asked, elements: Sequence[Any], times: Counter[str]) -> list[Any]:
        names = {name_of(element) for element in elements if leaving is None or not leaving(element, times)}
        refused = {each for each in names if not asked.may(operation, resource, each, times[each])}
        return [element for element in elements if name_of(element) in refused] if refused else []

    def judge_in_turns(asked: Asked, elements: Sequence[Any], times: Counter[str]) -> Steps:
        refused = []
        for portion in portions(elements):
            refused += judge(asked, portion, times)
            yield
        if refused:
            asked.take_out(field, refused, REFUSED[resource], message)

    def demand(asked: Asked) -> Steps | None:
        elements = elements_of(asked.request)
        if not elements or (unless is not None and unless(asked)):
            return None
        times = Counter(map(name_of, elements))
        if len(elements) > PORTION:
            return judge_in_turns(asked, elements, times)
        refused = judge(asked, elements, times)
        if refused:
            asked.take_out(field, refused, REFUSED[resource], message)
        return None

    def quick(authority: Everything, request: Any) -> bool:
        granted = authority.granted[wanted]
        for element in elements_of(request):  # noqa: SIM110 (all() takes twice as long for one)
            if name_of(element) not in granted:
                return False
        return True

    return with_quick(demand, quick)


def on_topics(operation: AclOperation, field: str = "topics", name: str = "name", **more: Any) -> Demand:
    """An operation on each of the request's topics."""
    return each(TOPIC, operation, field, name, **more)


def if_on_cluster(operation: AclOperation) -> Condition:
    """Whether they may do that with the cluster: what makes smaller demands needless."""
    return lambda asked: asked.could(operation, CLUSTER)


def repeated(name: str = "name") -> Callable[[Any, Counter[str]], bool]:
    """Elements whose name occurs more than once."""
    name_of = attrgetter(name)
    return lambda element, times: times[name_of(element)] > 1

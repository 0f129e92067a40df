"""`kbroker acl`: who may do what."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format
from kbroker.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    camel,
    word_of,
)

if TYPE_CHECKING:
    from kbroker.client.types import AccessRule, AccessRuleFilter

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("resource", "name", "pattern", "principal", "host", "permission", "operation")
RESOURCES = "topic|group|cluster|transactional-id|delegation-token|user"

Word = TypeVar("Word", AclResource, AclOperation, AclPermission)

Operation = Annotated[
    list[str] | None,
    typer.Option("--operation", "-o", metavar="OPERATION", help="read, write, describe, all, …; may be repeated."),
]
Principal = Annotated[
    list[str] | None,
    typer.Option("--principal", "-p", metavar="TYPE:NAME", help="Who: User:alice, User:*; may be repeated."),
]
WantedResource = Annotated[str | None, typer.Option("--resource", "-r", metavar=RESOURCES, help="Rules about these.")]
WantedName = Annotated[str | None, typer.Option("--name", "-n", help="The name that the rules have.")]
WantedPattern = Annotated[
    Literal["any", "match", "literal", "prefixed"],
    typer.Option(
        "--pattern", help="match: all rules that hold for the name, whether its own, a prefix's or those of *."
    ),
]
WantedPrincipal = Annotated[str | None, typer.Option("--principal", "-p", metavar="TYPE:NAME", help="Rules for them.")]


def _word(kind: type[Word], text: str, option: str) -> Word:
    try:
        word = word_of(kind, text.replace("-", ""))
    except ValueError:
        known = ", ".join(each.name.lower().replace("_", "-") for each in kind if each.name != "ANY")
        raise typer.BadParameter(f"{text!r} is none of {known}", param_hint=option) from None
    return word


def _filter(resource: str | None, name: str | None, pattern: str, principal: str | None) -> "AccessRuleFilter":
    from kbroker.client.types import AccessRuleFilter

    return AccessRuleFilter(
        resource=AclResource.ANY if resource is None else _word(AclResource, resource, "--resource"),
        name=name,
        principal=principal,
        pattern=AclPattern[pattern.upper()],
    )


def _print(rules: "list[AccessRule]", output_format: Any, empty: str) -> None:
    from kbroker.cli.output import print_rows

    rows: list[dict[str, Any]] = [
        {
            "resource": camel(rule.resource),
            "name": rule.name,
            "pattern": rule.pattern.name.lower(),
            "principal": rule.principal,
            "host": rule.host,
            "permission": camel(rule.permission),
            "operation": camel(rule.operation),
        }
        for rule in rules
    ]
    rows.sort(key=lambda row: [row[column] for column in COLUMNS])
    print_rows(rows, COLUMNS, output_format, empty=empty)


@app.command("list")
def list_rules(
    resource: WantedResource = None,
    name: WantedName = None,
    pattern: WantedPattern = "any",
    principal: WantedPrincipal = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """List access rules, all or those that match.

    \b
    kbroker acl list --resource topic --name flights --pattern match
    """
    from kbroker.cli.admin import with_admin

    wanted = _filter(resource, name, pattern, principal)
    _print(with_admin(bootstrap, lambda admin: admin.describe_acls(wanted)), output_format, empty="no access rules")


@app.command()
def add(
    resource: Annotated[str, typer.Argument(metavar=RESOURCES, help="What the rules are about.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Its name, * for all; a cluster needs none.")
    ] = None,
    principal: Principal = None,
    operation: Operation = None,
    host: Annotated[list[str] | None, typer.Option("--host", help="From this address only; may be repeated.")] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Forbid instead of allowing.")] = False,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="For all names that begin with NAME.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add access rules: one for each principal, operation and host.

    \b
    kbroker acl add topic flights --principal User:alice --operation read
    """
    from kbroker.cli.admin import with_admin
    from kbroker.client.types import AccessRule

    kind = _word(AclResource, resource, RESOURCES)
    if name is None and kind is not AclResource.CLUSTER:
        raise typer.BadParameter("a name is needed", param_hint="NAME")
    if not principal or not operation:
        raise typer.BadParameter("say who may do what: --principal TYPE:NAME --operation OPERATION")
    for who in principal:
        if ":" not in who:
            raise typer.BadParameter(f"{who!r} is not TYPE:NAME, as User:alice", param_hint="--principal")
    rules = [
        AccessRule(
            kind,
            CLUSTER_NAME if name is None else name,
            who,
            _word(AclOperation, what, "--operation"),
            AclPermission.DENY if deny else AclPermission.ALLOW,
            where,
            AclPattern.PREFIXED if prefixed else AclPattern.LITERAL,
        )
        for who in principal
        for what in operation
        for where in host or ("*",)
    ]
    with_admin(bootstrap, lambda admin: admin.create_acls(rules))


@app.command()
def remove(
    resource: WantedResource = None,
    name: WantedName = None,
    pattern: WantedPattern = "any",
    principal: WantedPrincipal = None,
    operation: Annotated[
        str | None, typer.Option("--operation", "-o", metavar="OPERATION", help="Rules for just this.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All rules there are, when nothing narrows them.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Remove the access rules that match, and show them.

    \b
    kbroker acl remove --principal User:alice --dry-run
    """
    from dataclasses import replace

    from kbroker.cli.admin import with_admin

    if not everything and all(each is None for each in (resource, name, principal, operation)):
        raise typer.BadParameter("say which rules: by --resource, --name, --principal, --operation, or --all")
    wanted = _filter(resource, name, pattern, principal)
    if operation is not None:
        wanted = replace(wanted, operation=_word(AclOperation, operation, "--operation"))
    removed = with_admin(
        bootstrap, lambda admin: admin.describe_acls(wanted) if dry_run else admin.delete_acls([wanted])
    )
    _print(removed, output_format, empty="no such access rules")

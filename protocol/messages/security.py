"""Who is asking, and what may they do: SASL, access rules, delegation tokens, SCRAM credentials, forwarding."""

from __future__ import annotations

from kbroker.protocol.primitives import (
    Array,
    Bytes,
    Error,
    Int8,
    Int32,
    Int64,
    NullableArray,
    NullableBytes,
    NullableStr,
    Str,
)
from kbroker.protocol.schema import Message, Secret, Struct, request, response, since


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Message):
    """Choose a SASL mechanism."""

    mechanism: Str


@response(to=SaslHandshakeRequest)
class SaslHandshakeResponse(Message):
    """The mechanisms that are enabled."""

    error_code: Error
    mechanisms: Array[Str]


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    """One token of the client's side of the SASL exchange."""

    auth_bytes: Secret


@response(to=SaslAuthenticateRequest)
class SaslAuthenticateResponse(Message):
    """One token of the server's side, and the session's life time once authenticated."""

    error_code: Error
    error_message: NullableStr = None
    auth_bytes: Secret
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)


@request(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Message):
    """Ask for access rules that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: NullableStr
    pattern_type_filter: Int8 = 3
    principal_filter: NullableStr
    host_filter: NullableStr
    operation: Int8
    permission_type: Int8


@response(to=DescribeAclsRequest)
class DescribeAclsResponse(Message):
    """Access rules, grouped by resource pattern."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    resources: Array[DescribeAclsResource]

    class DescribeAclsResource(Struct):
        resource_type: Int8
        resource_name: Str
        pattern_type: Int8 = 3
        acls: Array[DescribeAclsResponse.AclDescription]

    class AclDescription(Struct):
        principal: Str
        host: Str
        operation: Int8
        permission_type: Int8


@request(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Message):
    """Add access rules."""

    creations: Array[AclCreation]

    class AclCreation(Struct):
        resource_type: Int8
        resource_name: Str
        resource_pattern_type: Int8 = 3
        principal: Str
        host: Str
        operation: Int8
        permission_type: Int8


@response(to=CreateAclsRequest)
class CreateAclsResponse(Message):
    """What became of each rule."""

    throttle_time_ms: Int32 = 0
    results: Array[AclCreationResult]

    class AclCreationResult(Struct):
        error_code: Error
        error_message: NullableStr = None


@request(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Message):
    """Delete the access rules that match filters."""

    filters: Array[DeleteAclsFilter]

    class DeleteAclsFilter(Struct):
        resource_type_filter: Int8
        resource_name_filter: NullableStr
        pattern_type_filter: Int8 = 3
        principal_filter: NullableStr
        host_filter: NullableStr
        operation: Int8
        permission_type: Int8


@response(to=DeleteAclsRequest)
class DeleteAclsResponse(Message):
    """The rules deleted by each filter."""

    throttle_time_ms: Int32 = 0
    filter_results: Array[DeleteAclsFilterResult]

    class DeleteAclsFilterResult(Struct):
        error_code: Error
        error_message: NullableStr = None
        matching_acls: Array[DeleteAclsResponse.DeleteAclsMatchingAcl]

    class DeleteAclsMatchingAcl(Struct):
        error_code: Error
        error_message: NullableStr = None
        resource_type: Int8
        resource_name: Str
        pattern_type: Int8 = 3
        principal: Str
        host: Str
        operation: Int8
        permission_type: Int8


@request(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest(Message):
    """Ask for a delegation token."""

    owner_principal_type: NullableStr = since(3, default="")
    owner_principal_name: NullableStr = since(3, default="")
    renewers: Array[CreatableRenewers]
    max_lifetime_ms: Int64

    class CreatableRenewers(Struct):
        principal_type: Str
        principal_name: Str


@response(to=CreateDelegationTokenRequest)
class CreateDelegationTokenResponse(Message):
    """The token: its id, secret and times."""

    error_code: Error
    principal_type: Str
    principal_name: Str
    token_requester_principal_type: Str = since(3, default="")
    token_requester_principal_name: Str = since(3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: Str
    hmac: Secret
    throttle_time_ms: Int32 = 0


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest(Message):
    """Move a token's expiry into the future."""

    hmac: Secret
    renew_period_ms: Int64


@response(to=RenewDelegationTokenRequest)
class RenewDelegationTokenResponse(Message):
    """The new time of expiry."""

    error_code: Error
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


@request(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest(Message):
    """Change a token's expiry; a negative period ends it at once."""

    hmac: Secret
    expiry_time_period_ms: Int64


@response(to=ExpireDelegationTokenRequest)
class ExpireDelegationTokenResponse(Message):
    """The new time of expiry."""

    error_code: Error
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


@request(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest(Message):
    """Ask for the tokens of owners; null asks for all that may be seen."""

    owners: NullableArray[DescribeDelegationTokenOwner]

    class DescribeDelegationTokenOwner(Struct):
        principal_type: Str
        principal_name: Str


@response(to=DescribeDelegationTokenRequest)
class DescribeDelegationTokenResponse(Message):
    """Tokens with owner, requester, times and renewers."""

    error_code: Error
    tokens: Array[DescribedDelegationToken]
    throttle_time_ms: Int32 = 0

    class DescribedDelegationToken(Struct):
        principal_type: Str
        principal_name: Str
        token_requester_principal_type: Str = since(3, default="")
        token_requester_principal_name: Str = since(3, default="")
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: Str
        hmac: Secret
        renewers: Array[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: Str
        principal_name: Str


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    """Ask which SCRAM credentials users have; null asks for all users."""

    users: NullableArray[UserName]

    class UserName(Struct):
        name: Str


@response(to=DescribeUserScramCredentialsRequest)
class DescribeUserScramCredentialsResponse(Message):
    """Mechanisms and iterations per user, never the secrets."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    results: Array[DescribeUserScramCredentialsResult]

    class DescribeUserScramCredentialsResult(Struct):
        user: Str
        error_code: Error
        error_message: NullableStr = None
        credential_infos: Array[DescribeUserScramCredentialsResponse.CredentialInfo]

    class CredentialInfo(Struct):
        mechanism: Int8
        iterations: Int32


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    """Set and delete SCRAM credentials."""

    deletions: Array[ScramCredentialDeletion]
    upsertions: Array[ScramCredentialUpsertion]

    class ScramCredentialDeletion(Struct):
        name: Str
        mechanism: Int8

    class ScramCredentialUpsertion(Struct):
        name: Str
        mechanism: Int8
        iterations: Int32
        salt: Secret
        salted_password: Secret


@response(to=AlterUserScramCredentialsRequest)
class AlterUserScramCredentialsResponse(Message):
    """What became of each user."""

    throttle_time_ms: Int32 = 0
    results: Array[AlterUserScramCredentialsResult]

    class AlterUserScramCredentialsResult(Struct):
        user: Str
        error_code: Error
        error_message: NullableStr = None


@request(key=58, versions="0", flexible="0+")
class EnvelopeRequest(Message):
    """A client's request, forwarded to the controller with the client's principal."""

    request_data: Bytes
    request_principal: NullableBytes
    client_host_address: Bytes


@response(to=EnvelopeRequest)
class EnvelopeResponse(Message):
    """The answer to a forwarded request."""

    response_data: NullableBytes = None
    error_code: Error

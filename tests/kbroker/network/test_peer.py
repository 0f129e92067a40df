"""What is known of a connection's other end before it has said anything."""

from kbroker.network.peer import Peer
from kbroker.network.server import Listener
from kbroker.security.acls import ANONYMOUS
from kbroker.security.security_protocol import SecurityProtocol


def test_a_peer_is_anonymous_and_named_by_its_address() -> None:
    peer = Peer(Listener("CLIENTS", "", 9092, SecurityProtocol.SSL), "10.0.0.7", 40_000)
    assert repr(peer) == "10.0.0.7:40000 on CLIENTS"
    assert peer.security_protocol is SecurityProtocol.SSL
    assert (peer.principal, peer.client_software_name, peer.is_by_token) == (ANONYMOUS, "unknown", False)

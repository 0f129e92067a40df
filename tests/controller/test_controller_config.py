"""The controller's settings."""

from kbroker.controller.controller_config import ControllerConfig


def test_the_control_plane_listener_goes_before_the_inter_broker_listener() -> None:
    assert ControllerConfig().listener_name == "PLAINTEXT"
    config = ControllerConfig(inter_broker_listener_name="INTERNAL", control_plane_listener_name="CONTROL")
    assert config.listener_name == "CONTROL"

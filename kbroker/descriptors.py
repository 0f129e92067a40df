"""How many descriptors a server may have: a broker, the page."""

import logging
import resource

log = logging.getLogger(__name__)


def raise_descriptor_limit() -> None:
    """Take as many as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)

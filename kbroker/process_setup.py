"""What a broker's process is given before it begins: a log, and as many open files as there may be."""

from __future__ import annotations

import logging
import resource
import sys

log = logging.getLogger(__name__)


def set_up_logging() -> None:
    """Log to standard error, one line per event, unless the process has its own logging."""
    if not logging.getLogger().handlers:
        logging.basicConfig(
            level=logging.INFO, stream=sys.stderr, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
        )


def raise_descriptor_limit() -> None:
    """Take as many descriptors as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)

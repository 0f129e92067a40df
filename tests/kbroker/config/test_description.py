"""Loggers as DescribeConfigs shows them; keys and their sources are in test_dynamic_config.py."""

import logging

from kbroker.config.description import LOGGER, describe_loggers, set_logger_level


def level_of(name: str) -> str | None:
    entry = next(entry for entry in describe_loggers() if entry.name == name)
    assert entry.source == LOGGER
    return entry.value


def test_levels_have_log4js_names() -> None:
    logger = logging.getLogger("kbroker.test_config_description")
    for level, number in (("TRACE", 5), ("WARN", logging.WARNING), ("FATAL", logging.CRITICAL)):
        set_logger_level(logger.name, level)
        assert logger.level == number
        assert level_of(logger.name) == level
    set_logger_level(logger.name, None)
    assert logger.level == logging.NOTSET


def test_the_root_logger_comes_first() -> None:
    assert describe_loggers()[0].name == "root"

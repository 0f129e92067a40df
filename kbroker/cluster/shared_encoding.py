"""UpdateMetadata tells all brokers the same: its topics and brokers are put into bytes once, not once per broker."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from kbroker.protocol.codec import EncodedArray, encode_elements
from kbroker.protocol.messages.replication import UpdateMetadataRequest

KEPT = 16
"""Lists in their encoded form: brokers that keep up ask for the same ones within moments."""


class SharedEncoding:
    """Requests with the arrays they share in encoded form."""

    def __init__(self) -> None:
        self._encoded: OrderedDict[tuple[int, int], tuple[Any, EncodedArray]] = OrderedDict()
        """By the list's identity and the version; the list is kept, so that no other has its identity."""

    def share(self, request: Any, version: int) -> Any:
        """The request itself, or its like with arrays that may have been encoded before for another broker."""
        if not isinstance(request, UpdateMetadataRequest) or request.ungrouped_partition_states:
            return request
        return UpdateMetadataRequest(
            controller_id=request.controller_id,
            is_kraft_controller=request.is_kraft_controller,
            type=request.type,
            controller_epoch=request.controller_epoch,
            broker_epoch=request.broker_epoch,
            topic_states=self._array(request.topic_states, version),
            live_brokers=self._array(request.live_brokers, version),
        )

    def _array(self, elements: Any, version: int) -> Any:
        key = id(elements), version
        known = self._encoded.get(key)
        if known is None:
            encoded = encode_elements(elements, UpdateMetadataRequest, version)
            known = self._encoded[key] = elements, EncodedArray(len(elements), [encoded])
            if len(self._encoded) > KEPT:
                self._encoded.popitem(last=False)
        else:
            self._encoded.move_to_end(key)
        return known[1]

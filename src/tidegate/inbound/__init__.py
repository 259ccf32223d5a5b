"""① An update arrives: it is held durably, then handled in the order of its chat."""

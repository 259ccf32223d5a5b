"""① An update arrives: it is stored durably, then handled in the order of its chat."""

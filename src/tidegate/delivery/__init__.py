"""⑤ A message is sent, its answer judged, its claim settled."""

"""`tidegate demo payment`."""

"""`tidegate flow`: a conversation checked and drawn before it runs."""

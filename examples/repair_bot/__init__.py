"""A bot that takes reports of damages: photos, a list, a contact, and a flow within a flow."""

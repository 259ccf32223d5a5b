"""The shop as an aiogram bot."""

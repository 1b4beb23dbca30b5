"""Digits, learnt by many clients together: data and model, client app and server app."""

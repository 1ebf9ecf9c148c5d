"""Negotiated quality as clients say and hear it: JSON forms, requests, what a node measures."""

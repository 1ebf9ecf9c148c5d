"""Negotiated quality as clients say and hear it: JSON forms, holdings, what a node measures."""

"""Negotiation of information quality between subscribers' expectations and publishers' profiles."""

"""Measurement and reports, and the independent reference they are verified against."""

"""Captum-compatible attributions: CoAM, SteeredRISE, controls, `explain_func`."""

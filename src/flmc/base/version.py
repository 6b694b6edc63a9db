"""The version of flmc, in one place."""

VERSION = "0.1.0"

"""Devices with sourced numbers: lasers, modulators, detectors, converters, phase shifters, rings."""

"""Optical and converter devices with sourced numbers: lasers, modulators, detectors, converters, phase shifters, rings."""

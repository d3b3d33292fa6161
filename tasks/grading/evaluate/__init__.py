"""What agrees with whom, per slice, with intervals; and whether one run agrees better than another."""

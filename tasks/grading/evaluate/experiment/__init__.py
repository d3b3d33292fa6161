"""Tables and figures over several runs of one experiment."""

"""Prefect: flows and tasks, what a run leaves in its UI, and the workers of a cluster.

In: functions of the stages. Out: the same functions as tasks and flows, plain calls where no server watches; artifacts;
pieces of a stage done by workers of Dask or Ray. In reading order:

runs            flows and tasks, their log, credentials, and waiting for people
artifacts       texts, tables, progress and events in Prefect's UI
shared_stage    a stage whose pieces workers do: judging, calibration, graphs
piece_progress  how far the pieces are, told while they are worked
engines         the cluster's task runner, its server, and its workers piece by piece
orphans         a script that does what is left when the command has ended: ends the server, clears up
"""

"""The outside eye of one host: it restarts the pair when the supervisors are gone or stuck.

`rules`, `budget` and `memory` decide and touch nothing; `bus`, `probe` and `report` are the edges;
`daemon` is the loop between them. The metrics exporter and the page will stand beside the daemon.
"""

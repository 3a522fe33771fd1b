"""Reservations: made, changed, begun, ended, and the nodes and devices they get.

`reservation`    CreateReservation, UpdateReservation, DeleteReservation; starts, ends, next occurrences
`reserve`        which nodes or cores a reservation gets; `reserve_gres`: which devices
`replenish`      replaces nodes that cannot be used
"""

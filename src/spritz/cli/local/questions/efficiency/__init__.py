"""The parts of `spritz eff`.

`fetch` gets the records from slurmdbd and the controller; `measure` computes requested and used resources; `advice`
suggests better requests; `text` prints both. All but `fetch` are pure.
"""

"""What the API server asks before it accepts an object.

`pods`              assigns pods to this scheduler, and refuses those that cannot be jobs
`custom_resources`  what the definitions of the operator's own resources cannot say
`webhooks`          serves both by HTTPS; `certificates`: a private authority, and what it signs
"""

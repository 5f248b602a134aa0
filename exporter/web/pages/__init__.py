"""The pages for people: HTML that is made on the server and readable without JavaScript.

Each page shows the same values as the JSON under `/api/v1`, because it is made from that JSON.
"""

"""The protocols of OpenAI: agents as models, to chat with and to get responses from."""

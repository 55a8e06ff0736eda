"""`python -m cadre_agent FILE`"""

from cadre_agent.main import command

command()

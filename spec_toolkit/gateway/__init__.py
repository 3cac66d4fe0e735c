"""The front door: clients reach whichever engine serves, and a stream whose engine is lost goes on at the next one."""

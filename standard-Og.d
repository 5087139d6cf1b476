standard-Og.o: build/cpu-native/standard-Og.h dev/make/standard.h
dev/make/standard.h:

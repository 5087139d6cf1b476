standard-O1.o: build/cpu-native/standard-O1.h dev/make/standard.h
dev/make/standard.h:
